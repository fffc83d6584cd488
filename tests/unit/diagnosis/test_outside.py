"""What comes before the first forward, or after backward, is in no module; the rest is for others.

On ranks: `tests/ranks/diagnosis/test_outside.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tpcheck.case import Case
from tpcheck.causes.structure import NothingKnown
from tpcheck.causes.where import AfterGradients, BeforeForward, Early, FirstSeen
from tpcheck.diagnosis.outside import outside
from tpcheck.evidence import Misheld, NotAsSaved, ReplicasDiffer
from tpcheck.placement import Replicate
from tpcheck.tensors.names import Key, Shelf
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Fault, Kind

CASE, FULL = Case(), torch.arange(4.0)
GRADED = SimpleNamespace(kind=Kind.PARAM_GRAD, name="w")


def seen(
    *mismatches: Mismatch,
    left: torch.Tensor = FULL,
    computed: bool = False,
    loads: bool = False,
    most: tuple[float, ...] = (),
) -> FirstSeen | None:
    """Of a case with a parameter `w`, as `load` left it on the only rank, and a buffer `b`."""
    problem = SimpleNamespace(params={"w": FULL}, targets=[GRADED], most=list(most))
    posed = SimpleNamespace(
        problems=[problem],
        params={"w": Replicate()},
        computed={"w"} if computed else set(),
        frozen=set(),
    )
    dumps = {0: {Key(Shelf.LOADED, "w"): left, Key(Shelf.DUE, "w"): FULL}}
    result = CaseResult(CASE, "gloo", list(mismatches))
    facts: Any = SimpleNamespace(posed=posed, dumps=dumps, case=CASE, result=result, spec=None)
    return outside(facts, None, NothingKnown(None), loads=loads)


def wrong(tensor: str, kind: Kind) -> Mismatch:
    return Mismatch(tensor, kind, 0)


def replicas_of(kind: Kind, tensor: str) -> Mismatch:
    return Mismatch(tensor, Kind.REPLICA, 0, detail=ReplicasDiffer(kind, (0, 1), (1,)))


OUTPUT, OTHER = wrong("output", Kind.OUTPUT), FULL.flip(0)


@pytest.mark.parametrize(
    ("given", "doing"),
    [
        ({"left": OTHER, "loads": True}, Early.LOADED),
        ({"left": OTHER, "computed": True, "loads": True}, Early.COMPUTED),
        ({"left": OTHER, "computed": True}, Early.COMPUTED),
        ({"left": OTHER}, None),
        ({"loads": True}, None),
    ],
)
def test_what_is_wrong_before_the_first_forward(given: Any, doing: Early | None) -> None:
    found = seen(OUTPUT, **given)
    assert found == (None if doing is None else BeforeForward("w", doing))


@pytest.mark.parametrize(
    ("held", "early"),
    [
        (Misheld(Fault.WHOLE), True),
        (Misheld(Fault.STORAGE, storage=8), True),
        (Misheld(Fault.STORAGE, storage=8, what="gradient"), False),
        (Misheld(Fault.READ, storage=8, expected=4), False),
    ],
)
def test_how_a_parameter_is_held(held: Misheld, early: bool) -> None:
    found = seen(Mismatch("w", Kind.SHARDING, 0, detail=held), OUTPUT)
    assert found == (BeforeForward("w", Early.HELD) if early else None)


def test_what_is_not_as_it_was_saved_is_the_loaders() -> None:
    found = seen(Mismatch("w", Kind.PARAM, 0, (0,), 1.0, 2.0, 1.0, 0.0, NotAsSaved(1, 4)))
    assert found == BeforeForward("w", Early.LOADED)


@pytest.mark.parametrize(
    ("mismatches", "most", "found"),
    [
        (
            [wrong("norm", Kind.GRAD_NORM), wrong("w", Kind.PARAM)],
            (1.0,),
            AfterGradients("norm", Kind.GRAD_NORM, clipped=True),
        ),
        ([wrong("w", Kind.PARAM)], (), AfterGradients("w", Kind.PARAM)),
        ([wrong("w", Kind.PARAM)], (1.0,), AfterGradients("w", Kind.PARAM, clipped=True)),
        ([wrong("b", Kind.PARAM)], (), AfterGradients("b", Kind.PARAM, buffer=True)),
        (
            [wrong("w", Kind.PARAM), wrong("output@step", Kind.OUTPUT)],
            (),
            AfterGradients("w", Kind.PARAM),
        ),
        ([wrong("w", Kind.PARAM), wrong("w", Kind.PARAM_GRAD)], (), None),
        ([replicas_of(Kind.PARAM, "w")], (), AfterGradients("w", Kind.PARAM)),
        ([wrong("w", Kind.PARAM), replicas_of(Kind.PARAM_GRAD, "w")], (), None),
        ([wrong("w", Kind.PARAM), wrong("x@1", Kind.INPUT_GRAD)], (), None),
        ([wrong("w", Kind.PARAM), wrong("mask", Kind.MASK)], (), None),
        ([OUTPUT], (), None),
        ([], (), None),
    ],
)
def test_every_gradient_agrees_where_what_comes_after_is_wrong(
    mismatches: list[Mismatch], most: tuple[float, ...], found: FirstSeen | None
) -> None:
    assert seen(*mismatches, most=most) == found
