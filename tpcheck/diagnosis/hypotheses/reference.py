"""The reference, asked about other numbers: what would it give in the place of a wrong tensor?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from tpcheck.causes.where import Side
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.oracle.expected import evaluate
from tpcheck.protocol.problem import Problem

Change = Callable[[Tensor], Tensor]


def answers(facts: Facts, local: Local) -> bool:
    """Whether the reference can say what it would give in the place of this tensor: not of one
    inside, nor where gradients are combined over dp."""
    known = {(t.kind, t.name) for t in facts.posed.problems[0].targets}
    return local.key in known and facts.spec is not None and facts.case.dp == 1


def given(facts: Facts, problem: Problem) -> Mapping[tuple[str, str], Tensor]:
    """Everything that the reference gives for `problem`."""
    assert facts.spec is not None
    return evaluate(facts.spec, facts.case, problem)[0]


def with_other(facts: Facts, local: Local, side: Side, name: str, change: Change) -> Tensor | None:
    """What the reference has in the place of the wrong tensor once the input or cotangent `name` is
    changed, in every pass; None where that can't be asked."""
    if not answers(facts, local):
        return None
    problem = facts.posed.problems[0]
    passes = problem.inputs if side is Side.INPUT else problem.cotangents
    other = [{n: change(t) if n == name else t for n, t in own.items()} for own in passes]
    if side is Side.INPUT:
        return given(facts, replace(problem, inputs=other)).get(local.key)
    return given(facts, replace(problem, cotangents=other)).get(local.key)
