"""What a step leaves as it was is so to the bit, however wide the bounds are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from tests.unit.test_training import CASE, spec, values
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.steps import not_taken
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import Replicate
from tpcheck.tensors.names import InPass, Key, Pass
from tpcheck.vocabulary import Kind

BASES = {Kind.PARAM: "up.weight", Kind.OPTIMIZER_STATE: "up.weight.momentum_buffer"}


@pytest.fixture(scope="module")
def posed() -> Posed:
    return pose(spec(), CASE)


def named(posed: Posed, kind: Kind, step: int, actual: Tensor, *, had: int | None = None) -> bool:
    """Whether a rank that has this after a step, within bounds as wide as the numbers, has what was
    there before.

    Args:
        had: the last step after which it has what the reference does, until this one; None: that
            before this one.
    """
    problem, base = posed.problems[0], BASES[kind]
    name = str(InPass(base, Pass(0, step)))
    found = next(t for t in problem.targets if (t.kind, t.name) == (kind, name))
    wide = replace(found.spread, sigma=torch.full_like(found.value, float(found.value.abs().max())))
    target = replace(found, entry=Replicate(), spread=wide)
    held = {
        Key(kind, str(InPass(base, Pass(0, at)))): values(posed, kind, last)[base].float()
        for at in range(step)
        for last in [at if had is None else min(at, had)]
    }
    graded = SimpleNamespace(problems=[problem], frozen=frozenset())
    facts = SimpleNamespace(posed=graded, dumps={0: held}, problem_of=lambda local: problem)
    facts.right_over_dp = lambda local: None
    each = {0: actual}, {0: target.value}, {0: torch.full_like(target.value, 1e-9)}
    return not_taken(cast("Facts", facts), Local(target, CASE, [0], *each)) is not None


@pytest.mark.parametrize("kind", BASES, ids=str)
def test_it_has_what_it_had(posed: Posed, kind: Kind) -> None:
    earlier = values(posed, kind, 0)[BASES[kind]].float().double()
    assert named(posed, kind, 1, earlier)
    assert named(posed, kind, 2, earlier, had=0), "and so after several"


@pytest.mark.parametrize("kind", BASES, ids=str)
def test_what_it_had_before_an_earlier_step_has_changed_since(posed: Posed, kind: Kind) -> None:
    """A scale that falls in a step, and grows in the next one, was not left as it was."""
    earlier = values(posed, kind, 0)[BASES[kind]].float().double()
    assert not named(posed, kind, 2, earlier)


@pytest.mark.parametrize("kind", BASES, ids=str)
@pytest.mark.parametrize("share", [0.1, 1e-3])
def test_a_part_of_a_step_is_one(posed: Posed, kind: Kind, share: float) -> None:
    before, after = (values(posed, kind, step)[BASES[kind]] for step in (0, 1))
    assert not named(posed, kind, 1, before + share * (after - before))


def test_nothing_is_kept_before_the_first(posed: Posed) -> None:
    first = values(posed, Kind.OPTIMIZER_STATE, 0)[BASES[Kind.OPTIMIZER_STATE]]
    assert named(posed, Kind.OPTIMIZER_STATE, 0, torch.zeros_like(first))
    assert not named(posed, Kind.OPTIMIZER_STATE, 0, 0.1 * first)
