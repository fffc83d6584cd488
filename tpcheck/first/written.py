"""A first check, from what is named to the text of its file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tpcheck.errors import InvalidArgument, listed
from tpcheck.first import text
from tpcheck.first.factory import Factory
from tpcheck.first.inputs import Given, guessed, told
from tpcheck.first.reading import DEGREES, Read, Whole, patterned, read, whole
from tpcheck.placement import Placement, Replicate, Shard
from tpcheck.plan.audit import audit
from tpcheck.plan.plan import Plan, as_plan
from tpcheck.plan.unknown_style import fake_mesh

#: What is said of a plan that shards only a part.
WHOLE = "whole on every rank, by the plan: {}; take from WHOLE what is meant to be sharded"
#: What is said of code that shards only a part of what it could.
LEFT = "whole on every rank: {}; where one is meant to be sharded, the layout is to say so"
#: What is said of a weight that may hold several: its shape is that of a plain shard.
MAY_BE_FUSED = (
    "{0} may be fused: where a rank holds a part of each of n blocks, write Blocks({1}, n) in the "
    "place of Shard({1})"
)
#: What such weights are called.
_FUSED = re.compile(r"qkv|gate_?up|up_?gate|w1_?3|query_key_value|in_proj|c_attn|fused|kv_proj")


@dataclass(frozen=True)
class Written:
    """A file's text, and what its reader should know."""

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """A plan, by which the written file imports it."""

    module: str
    name: str
    value: Any


def of_plan(factory: Factory, plan: Planned, inputs: Sequence[str]) -> Written:
    """The check of a module under a plan of `parallelize_module`.

    Raises:
        InvalidArgument: the plan does not apply, or the module's inputs can't be guessed.
    """
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    module = _module(factory, factory())
    entries = dict(as_plan(plan.value).entries)
    given = told(inputs) or guessed(module, factory.target)
    of = whole(module, given)

    def build(mesh: Any) -> nn.Module:
        made = _module(factory, factory())
        try:
            return parallelize_module(made, mesh, entries)
        except Exception as error:
            said = " ".join(str(error).split())
            raise InvalidArgument(f"the plan {plan.name} at tp={mesh.size()}: {said}") from None

    sequence = any(isinstance(style, SequenceParallel) for style in entries.values())
    found = read(of, build, given, sequence=sequence)
    own = isinstance(plan.value, Plan)
    rows = [] if own else audit(module, as_plan(plan.value), tp=2).parameters
    left = [row.name for row in rows if row.placement == "whole"]
    kept = list(patterned(dict.fromkeys(left, Replicate()), list(of.full)))
    declared = ["", f"WHOLE = ({', '.join(map(_quoted, kept))},)  # no entry shards them"]
    held = plan.name if own or not kept else f"tpcheck.Plan({plan.name}, whole=WHOLE)"
    body = [*(declared if kept else []), *_of_inputs(given, found, _params(found, of))]
    check = text.call(
        f"{text.name_of(factory)} = dtensor.check",
        [
            f"lambda case: {factory.text()}",
            held,
            "cases=cases",
            "inputs=inputs",
            "layout=layout",
            f'name="{factory.name}"',
            *_degrees(found),
        ],
    )
    needed = [(factory.module, factory.top), (plan.module, plan.name.partition(".")[0])]
    names = {"strategies"} | text.placements(found, _params(found, of))
    first = [
        *(["import tpcheck"] if "tpcheck." in held else []),
        f"from tpcheck import {', '.join(sorted(names, key=_as_isort))}",
        "from tpcheck.adapters import dtensor",
        *text.imports(*needed),
    ]
    notes = [WHOLE.format(listed(kept))] if kept else []
    what = f"{factory.target} under {plan.name}"
    return _written(what, first, [*body, "", "", *check], [*found.notes, *notes])


def of_candidate(factory: Factory, reference: Factory | None, inputs: Sequence[str]) -> Written:
    """The check of a module that is built on each rank, against a reference, or against itself on
    one rank.

    Raises:
        InvalidArgument: it can't be built or read.
    """
    with contextlib.ExitStack() as stack:
        if reference is None:
            mesh = stack.enter_context(fake_mesh(1))
            module = _plain(factory, _module(factory, factory(mesh)))
        else:
            module = _module(reference, reference())
        given = told(inputs) or guessed(module, (reference or factory).target)
        of = whole(module, given)
    found = read(of, lambda mesh: _module(factory, factory(mesh)), given)
    params = _params(found, of)
    body = _of_inputs(given, found, params)
    body += text.function("candidate(case, mesh)", [f"return {factory.text()}"])
    whose = "None" if reference is None else f"lambda case: {reference.text()}"
    spec = text.call(
        "spec = Spec",
        [
            f'name="{factory.name}"',
            "cases=cases",
            f"reference={whose}",
            "inputs=inputs",
            "layout=layout",
            *_degrees(found),
        ],
    )
    kind = "Relation" if reference is None else "Check"
    check = f"{text.name_of(factory)} = tpcheck.{kind}(spec, candidate=candidate)"
    names = {"Spec", "strategies"} | text.placements(found, params)
    needed = [(one.module, one.top) for one in (factory, reference) if one is not None]
    first = [
        "import tpcheck",
        f"from tpcheck import {', '.join(sorted(names, key=_as_isort))}",
        *text.imports(*needed),
    ]
    notes = [*found.notes, *_doubts(found, of)]
    if reference is None:
        notes.append("its reference is itself on one rank: give --reference for another")
    if not params:
        notes.append("no parameter of it is sharded")
    return _written(factory.target, first, [*body, "", "", *spec, check], notes)


def of_transformers(factory: Factory, made: Any) -> Written:
    """The check of a transformers model, or configuration, under the plan that it ships.

    Raises:
        InvalidArgument: it ships none, or its heads don't divide.
    """
    from transformers import AutoModelForCausalLM

    from tpcheck.adapters.transformers import apply_tp_plan

    is_model = isinstance(made, nn.Module)
    config = made.config if is_model else made

    def built() -> Any:
        own = factory()
        return own if is_model else AutoModelForCausalLM.from_config(own)

    of = whole(built(), [])
    found = read(of, lambda mesh: apply_tp_plan(built(), mesh), ())
    params = _params(found, of)
    make = factory.text() if is_model else f"AutoModelForCausalLM.from_config({factory.text()})"
    body = text.function("build(case)", [f"return {make}"])
    sizes = {"batch": "strategies.sizes(1, 2)", "seq": "strategies.sizes(1, 5)"}
    body += text.drawing(sizes | {"vocab": str(_vocab(config))})
    body += text.layout(found, params)
    arguments = ["build", "cases=cases", "layout=layout", f'name="{factory.name}"']
    spec = text.call("spec = transformers.spec", [*arguments, *_degrees(found)])
    name = text.name_of(factory)
    check = f"{name} = tpcheck.Check(spec, candidate=transformers.candidate(build))"
    names = {"strategies"} | text.placements(found, params)
    first = [
        "import tpcheck",
        f"from tpcheck import {', '.join(sorted(names, key=_as_isort))}",
        "from tpcheck.adapters import transformers",
        *([] if is_model else ["from transformers import AutoModelForCausalLM"]),
        *text.imports((factory.module, factory.top)),
    ]
    return _written(
        f"{factory.target} under its tp_plan", first, [*body, "", "", *spec, check], found.notes
    )


def is_of_transformers(made: Any) -> bool:
    """Whether it is a configuration, or a model that ships a plan."""
    configuration = any(
        cls.__name__ == "PretrainedConfig" or cls.__name__ == "PreTrainedConfig"
        for cls in type(made).__mro__
    )
    return configuration or bool(getattr(made, "tp_plan", None))


def _vocab(config: Any) -> int:
    size = getattr(config, "vocab_size", None)
    if not isinstance(size, int):
        raise InvalidArgument(f"{type(config).__name__} has no vocab_size: it takes no token ids")
    return size


def _module(factory: Factory, made: Any) -> nn.Module:
    if not isinstance(made, nn.Module):
        raise InvalidArgument(
            f"{factory.target} returned a {type(made).__name__}, not an nn.Module"
        )
    return made


def _plain(factory: Factory, module: nn.Module) -> nn.Module:
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "device_mesh"):
            raise InvalidArgument(
                f"{name} of {factory.target} is a DTensor on one rank, too: give the unsharded "
                "module as --reference MODULE:FACTORY"
            )
    return module


def _params(found: Read, of: Whole) -> dict[str, Placement]:
    return patterned(found.params, list(of.full))


def _doubts(found: Read, of: Whole) -> list[str]:
    """What its shapes do not say: which matrices stay whole though others are sharded, and which
    may be several in one."""
    matrices = [
        name for name, full in of.full.items() if full.ndim >= 2 and name not in found.params
    ]
    notes = [LEFT.format(listed(matrices))] if found.params and matrices else []
    for name, own in found.params.items():
        if isinstance(own, Shard) and _FUSED.search(name):
            notes.append(MAY_BE_FUSED.format(name, own.dim))
    return notes


def _of_inputs(given: Sequence[Given], found: Read, params: dict[str, Placement]) -> list[str]:
    drawn = [f'"{one.name}": {one.text()},' for one in given]
    inputs = ["return {", *(f"    {line}" for line in drawn), "}"]
    return [
        *text.cases(given, found),
        *text.function("inputs(case, draw)", inputs),
        *text.layout(found, params),
    ]


def _degrees(found: Read) -> list[str]:
    if tuple(found.degrees) == DEGREES:
        return []
    return [f"degrees=({', '.join(map(str, found.degrees))},)"]


def _as_isort(name: str) -> tuple[bool, str]:
    return name.islower(), name


def _quoted(name: str) -> str:
    return f'"{name}"'


def _written(what: str, first: list[str], body: list[str], notes: Sequence[str]) -> Written:
    head = f'"""A first check of {what}, written by `tpcheck init`."""'
    return Written("\n".join([head, "", *first, *body, ""]), tuple(notes))
