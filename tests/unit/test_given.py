"""What users hand over is refused in one line where it is made, whatever it is."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from tpcheck import (
    Blocks,
    Budget,
    Case,
    Check,
    Heads,
    KnownFinding,
    Layout,
    Mutant,
    Only,
    Shard,
    Spec,
    specs,
    verify,
)
from tpcheck.adapters import dtensor
from tpcheck.configurations import Experts, Latent, Model
from tpcheck.errors import InvalidArgument
from tpcheck.given import number, whole
from tpcheck.search.options import Options
from tpcheck.space import Space

SPEC = specs.row_linear()


class Nameless:
    """An object that can't even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


def build(case: Case, mesh: Any) -> Any:
    return None


#: What no field takes: each is tried on every field that its type does not allow.
ODD: dict[str, Any] = {
    "object": Nameless(),
    "nan": math.nan,
    "inf": math.inf,
    "negative": -1,
    "fraction": -0.5,
    "long": 10**5000,
    "control": "a\x1b[31m\n",
    "surrogate": "\udcff",
    "giant": "x" * 10**6,
    "bytes": b"x",
    "list of text": ["x"],
    "mapping": {"x": "y"},
    "set": {1},
    "none": None,
}

WHOLE: dict[type, dict[str, Any]] = {
    Spec: {
        "name": "s", "cases": [Case()], "reference": build, "inputs": build, "layout": build,
    },
    Check: {"spec": SPEC, "candidate": build},
    Mutant: {
        "name": "m", "spec": SPEC, "candidate": build, "mechanism": "x", "source": "–",
        "shows_in": ("output",), "diagnosis": ("deadlock",),
    },
    KnownFinding: {
        "package": "torch", "releases": ">=0", "code": "deadlock", "case": Case(), "page": "x",
    },
    Budget: {},
    Layout: {},
    Shard: {"dim": 0},
    Heads: {"dim": 0, "heads": 2},
    Blocks: {"dim": 0, "parts": ((2, Shard(0)),)},
    Only: {"coordinate": 0},
    Options: {},
    Case: {},
    Space: {},
    Model: {
        "name": "m", "hidden": 8, "intermediate": 8, "vocab": 8, "layers": 1, "heads": 4,
        "kv_heads": 2, "head_dim": 2,
    },
    Experts: {"count": 4, "chosen": 2, "width": 8},
    Latent: {"q_rank": 2, "kv_rank": 2, "rotated": 2},
}  # fmt: skip

#: (class, field) → the odd values that are fine there.
FINE: dict[tuple[type, str], set[str]] = {
    (Spec, "preload"): {"list of text"},
    (Spec, "reference"): {"none"},
    (Spec, "dims"): {"mapping"},
    (Space, "dims"): {"mapping"},
    (Check, "plan"): set(ODD),
    (Mutant, "plan"): set(ODD),
    (Mutant, "mechanism"): {"giant"},
    (Mutant, "source"): {"giant"},
    (Budget, "forward"): {"none"},
    (Budget, "backward"): {"none"},
    (Budget, "saved"): {"none", "long"},
    (Options, "corpus"): {"none"},
    (Case, "dims"): {"mapping"},
    (Options, "examples"): {"long"},
    (Options, "seed"): {"long"},
    (Options, "degrees"): set(ODD),  # `Space` says what they may be
    (Options, "dtypes"): set(ODD),
    (Options, "shrink_cases"): {"long"},
    (Options, "lower_cases"): {"long"},
    (Options, "sparing"): {"long"},
    (Shard, "dim"): {"negative", "long"},
    (Shard, "even"): set(ODD),
    (Heads, "dim"): {"negative", "long"},
    (Heads, "heads"): {"negative", "long"},
    (Blocks, "dim"): {"negative", "long"},
    (Blocks, "parts"): {"long"},
    (Only, "coordinate"): {"negative", "long"},
    (Case, "magnitude"): {"negative"},
    (Space, "ranks"): {"long"},
    **{
        (Model, size): {"long"}
        for size in ("hidden", "intermediate", "vocab", "layers", "heads", "head_dim")
    },
    **{(Experts, field): {"long"} for field in ("count", "chosen", "width", "shared")},
    (Experts, "dense_layers"): {"long"},
    (Model, "rotary"): {"none"},
    **{(Latent, field): {"long"} for field in ("q_rank", "kv_rank", "rotated")},
}
FIELDS = [(kind, field) for kind in WHOLE for field in inspect.signature(kind).parameters]


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=[f"{k.__name__}.{f}" for k, f in FIELDS])
def test_every_field_refuses_what_it_can_not_be(kind: type, field: str) -> None:
    default = inspect.signature(kind).parameters[field].default
    fine = FINE.get((kind, field), set()) | ({"none"} if default is None else set())
    for name, value in ODD.items():
        if name in fine:
            continue
        with pytest.raises(InvalidArgument) as caught:
            kind(**WHOLE[kind] | {field: value})
        text = str(caught.value)
        assert len(text.splitlines()) == 1 and len(text) < 600, (name, text)


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_the_twin_what_is_right_is_taken(kind: type) -> None:
    kind(**WHOLE[kind])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Layout(params={"weight": "Shard(0)"}), "'Shard.0.'.*give Shard.dim., Replicate"),
        (lambda: Layout(outputs={"y": {"tp": "Shard(0)"}}), "'Shard.0.'.*give Shard.dim."),
        (lambda: Layout(inputs={"x": {1: Shard(0)}}), "is .1: Shard.*or axis → placement"),
        (lambda: Layout(params={1: Shard(0)}), "give a mapping of names to placements"),
        (lambda: Blocks(0, ((2, Blocks(0, ())),)), "give .size, Shard or Heads. pairs"),
        (lambda: Check(SPEC, build, known=["x"]), "known=.'x'.*give a list of KnownFindings"),
        (lambda: Check(SPEC, build, name="a\x1b[31m"), "give a printable text"),
        (lambda: Check(SPEC, build, name="\udcff"), "give a printable text"),
        (lambda: Check(SPEC, build, overrides={3: 4}), "overrides=.3: …. is not a field of a Spec"),
        (lambda: dtensor.check(build, None, cases=[], inputs=build), "this is a NoneType"),
        (lambda: Check(SPEC, build, overrides={"reference": 4}), "reference=4.*give a function"),
        (lambda: Budget({"all_reduce": "64"}), "number of elements"),
        (lambda: Budget(at_least={("forward", "send"): math.nan}), "give counts"),
        (lambda: verify(3), "verify.3.: give Checks"),
        (lambda: verify(Check(SPEC, build), degrees=2), "degrees=2 is.*in degrees=.2, 4."),
        (lambda: verify(Check(SPEC, build), dtypes="float32"), "is not.*in dtypes=..float64'"),
        (lambda: verify(Check(SPEC, build), degrees=("2",)), "tp degree '2'"),
        (lambda: verify(Check(SPEC, build), dtypes=(None,)), "dtype None"),
        (lambda: verify(Check(SPEC, build), examples=0), "examples=0"),
        (lambda: verify(Check(SPEC, build), time_budget=math.nan), "time_budget=nan"),
        (lambda: verify(Check(SPEC, build), corpus=3), "corpus=3"),
        (lambda: verify(Check(SPEC, build), engine=3), "engine=3: give an Engine"),
    ],
)  # fmt: skip
def test_each_is_named_with_what_to_give(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1


def test_markup_in_a_name_is_a_name() -> None:
    assert Check(SPEC, build, name="[/bold] :key:").title == "[/bold] :key:"


def test_a_case_of_deep_json_is_refused() -> None:
    deep: Any = json.loads("[" * 500 + "]" * 500)
    with pytest.raises(InvalidArgument):
        Case.from_dict({"dims": {"n": deep}})


@pytest.mark.parametrize("text", ["\u0662", "\uff12", "1_000", "", "two", "\u00b2"])
def test_a_typed_number_is_of_plain_digits(text: str) -> None:
    for read in (whole, number):
        with pytest.raises(ValueError):
            read(text)
    assert (whole(" -2"), number("2.5e3")) == (-2, 2500.0)
