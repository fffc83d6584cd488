"""Hypotheses about microbatches: which of them count, how often, and in which order they came.

Letters: R degree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import torch
from torch import Tensor

from tpcheck.causes.microbatches import (
    FirstPassRepeated,
    Moved,
    OnlyFirstSummed,
    PassesReordered,
    ReducedWithEach,
    SomePassesOnly,
)
from tpcheck.diagnosis.facts import Facts, Local, local_of
from tpcheck.oracle.expected import evaluate
from tpcheck.protocol.problem import Problem, Target
from tpcheck.tensors.names import InPass
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: Microbatches of which every order is tried: 4 have 24, each a run of the reference; 5 have 120.
MOST_PASSES = 4


def accumulated(facts: Facts, local: Local) -> Diagnosis | None:
    """Some microbatches' gradients are not in the sum, or the first one's is there R times, or each
    R times more with every one that follows, or only the first was summed over the ranks."""
    passes = facts.case.microbatches
    if local.kind is not Kind.PARAM_GRAD or passes < 2 or facts.spec is None or local.at.step:
        return None
    full = [_of_one_pass(facts, local, m) for m in range(passes)]
    for rank in local.wrong():
        parts = [local.part_of(gradient, rank) for gradient in full]
        named = (
            _first_repeated(facts, local, rank, parts[0])
            or _reduced_with_each(facts, local, rank, parts)
            or _some_only(local, rank, parts)
            or _only_first_summed(local, rank, parts[0])
        )
        if named is not None:
            return named
    return None


def _degrees(facts: Facts) -> list[int]:
    """How many ranks a sum of gradients may be over."""
    over = [facts.case.tp, facts.case.dp if facts.posed.shared else 1]
    return [degree for degree in dict.fromkeys(over) if degree > 1]


def _first_repeated(facts: Facts, local: Local, rank: int, first: Tensor) -> Diagnosis | None:
    for degree in _degrees(facts):
        many = local.expected[rank] + (degree - 1.0) * first
        if local.fits(local.actual[rank], rank, expected=many):
            return Diagnosis(Code.SUMMED_TWICE, FirstPassRepeated(local.subject, degree - 1.0))
    return None


def _reduced_with_each(
    facts: Facts, local: Local, rank: int, parts: list[Tensor]
) -> Diagnosis | None:
    passes = len(parts)
    for degree in _degrees(facts):
        each = [degree ** (passes - 1 - i) * part for i, part in enumerate(parts)]
        if local.fits(local.actual[rank], rank, expected=torch.stack(each).sum(0)):
            cause = ReducedWithEach(local.subject, degree ** (passes - 1), passes)
            return Diagnosis(Code.SUMMED_TWICE, cause)
    return None


def _some_only(local: Local, rank: int, parts: list[Tensor]) -> Diagnosis | None:
    kept = [
        choice
        for choice in product((0, 1), repeat=len(parts))
        if 0 < sum(choice) < len(parts)
        and local.fits(local.actual[rank], rank, expected=_chosen(choice, parts))
    ]
    if len(kept) != 1:
        return None
    there = tuple(m for m, is_there in enumerate(kept[0]) if is_there)
    return Diagnosis(Code.GRADIENT_DROPPED, SomePassesOnly(local.subject, there, len(parts)))


def _only_first_summed(local: Local, rank: int, first: Tensor) -> Diagnosis | None:
    if not local.alike():
        return None
    total = torch.stack(list(local.actual.values())).sum(0)
    once = local.expected[rank] + (local.case.tp - 1.0) * first
    if not local.fits(total, rank, expected=once):
        return None
    return Diagnosis(Code.PARTIAL_NOT_REDUCED, OnlyFirstSummed(local.subject, tuple(local.ranks)))


def _of_one_pass(facts: Facts, local: Local, m: int) -> Tensor:
    """The full gradient that the reference has of microbatch `m` alone."""
    assert facts.spec is not None
    d = facts.case.dp_coordinate(local.ranks[0])
    alone = [
        replace(
            problem,
            cotangents=[
                {name: t if k == m else torch.zeros_like(t) for name, t in given.items()}
                for k, given in enumerate(problem.cotangents)
            ],
        )
        for problem in _together(facts, d)
    ]
    return evaluate(facts.spec, facts.case, *alone)[0][local.key]


def _together(facts: Facts, d: int) -> list[Problem]:
    """The data of which gradients are taken together with that of dp coordinate `d`."""
    return facts.posed.problems if facts.posed.shared else [facts.posed.problems[d]]


def _chosen(choice: tuple[int, ...], parts: list[Tensor]) -> Tensor:
    return torch.stack([p for p, kept in zip(parts, choice, strict=True) if kept]).sum(0)


def reordered(facts: Facts, local: Local) -> Diagnosis | None:
    """The reference agrees, in every pass, once the microbatches of the inputs (in backward, of the
    cotangents) come in another order."""
    passes, d = facts.case.microbatches, facts.case.dp_coordinate(local.ranks[0])
    if not 1 < passes <= MOST_PASSES or facts.spec is None:
        return None
    if not local.kind.is_reduced or local.at.step:
        return None
    seen = [local_of(facts, target, d) for target in _in_every_pass(facts, local)]
    held = [each for each in seen if each is not None]
    if not held or len(held) < len(seen):
        return None  # a tensor inside, or one that a rank lacks
    side = Moved.INPUTS if local.kind.is_output else Moved.COTANGENTS
    for order in list(permutations(range(passes)))[1:]:
        moved = [_moved(problem, side, order) for problem in _together(facts, d)]
        values = evaluate(facts.spec, facts.case, *moved)[d if facts.posed.shared else 0]
        if all(each.holds(values[each.key], r) for each in held for r in each.ranks):
            cause = PassesReordered(local.subject, side, order)
            return Diagnosis(Code.SHARD_ORDER, cause)
    return None


def _in_every_pass(facts: Facts, local: Local) -> Iterator[Target]:
    """The tensor in each microbatch."""
    base = InPass.parse(local.target.name).base
    for target in facts.problem_of(local).targets:
        name = InPass.parse(target.name)
        same_step = name.at.step == local.at.step and name.at.microbatch is not None
        if (target.kind, name.base) == (local.kind, base) and same_step:
            yield target


def _moved(problem: Problem, side: Moved, order: tuple[int, ...]) -> Problem:
    """With the passes of the first step in another order."""
    if side is Moved.INPUTS:
        inputs = [problem.inputs[i] for i in order] + problem.inputs[len(order) :]
        return replace(problem, inputs=inputs)
    cotangents = [problem.cotangents[i] for i in order] + problem.cotangents[len(order) :]
    return replace(problem, cotangents=cotangents)
