"""Hypotheses about a step that is to be left out, since a gradient is infinite under a loss that is
scaled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tpcheck.causes.steps import OverflowIgnored, OverflowNotShared
from tpcheck.diagnosis.facts import Facts, Local, gather
from tpcheck.diagnosis.hypotheses.steps import before_step, is_buffer, stays
from tpcheck.diagnosis.replay import unclipped
from tpcheck.placement import take
from tpcheck.protocol.optimizing import MAIN
from tpcheck.protocol.scaling import SCALE, Overflow
from tpcheck.tensors.names import InPass
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Kind

#: What a step leaves.
_LEFT = (Kind.PARAM, Kind.OPTIMIZER_STATE)
#: Cosine of the angle between what has changed and what a step would have changed, from which on it
#: is one. With less, other changes pass for it; with more, one by other gradients is missed, as
#: those with zeros for what is infinite.
ALONG = 0.95
#: Numbers that must be there for it: few lie along anything by chance.
ENOUGH = 16


def taken_by_others(facts: Facts, local: Local) -> Diagnosis | None:
    """The ranks that have the infinite gradient are right, and all others wrong."""
    wrong, due = local.wrong(), _due(facts, local)
    if due is None or not wrong:
        return None
    others = [m for m in facts.result.mismatches if m.kind in _LEFT and m.name.base != SCALE]
    if not others:
        return None  # the scale alone is wrong
    owners = list(_infinite(facts, local, due))
    if not owners or set(wrong) != set(local.ranks) - set(owners):
        return None
    if any(m.rank in owners and m.name.at.step == due.step for m in others):
        return None  # they step, too, and are alone in what they make of the scale
    cause = OverflowNotShared(local.subject, due.name, tuple(owners), tuple(wrong))
    return Diagnosis(Code.MISSING_ALL_REDUCE, cause)


def taken_anyway(facts: Facts, first: Sequence[Mismatch]) -> Diagnosis | None:
    """Ranks step by the infinite gradient, or all ranks change what the reference leaves as it is,
    by a step. Before NaN, of which an infinite gradient leaves much."""
    if not all(mismatch.kind in _LEFT for mismatch in first):
        return None
    each = [local for m in first if (local := gather(facts, m)) is not None]
    changed = [local for local in each if _is_to_stay(facts, local)]
    for local in changed:
        due = _due(facts, local)
        if due is not None and (ranks := _stepped_by_it(facts, local, due)):
            cause = OverflowIgnored(local.subject, due.name, ranks)
            return Diagnosis(Code.OVERFLOW_IGNORED, cause)
    everywhere = [
        local
        for local in changed
        if {r for r in local.ranks if local.actual[r].numel()} == set(local.wrong())
    ]
    if not everywhere or not (_alone(facts, everywhere) or _along_a_step(facts, everywhere)):
        return None
    subject, due = everywhere[0].subject, _due(facts, everywhere[0])
    assert due is not None, "it is to stay"
    return Diagnosis(Code.OVERFLOW_IGNORED, OverflowIgnored(subject, due.name))


def _due(facts: Facts, local: Local) -> Overflow | None:
    """The overflow in the step that has left this; None where there is none."""
    due = facts.problem_of(local).overflow
    of_step = local.kind in _LEFT and due is not None and local.at.step == due.step
    return due if of_step else None


def _is_to_stay(facts: Facts, local: Local) -> bool:
    """Whether the reference leaves it as it is, in a step that is left out: not the scale, nor a
    buffer, which forwards update."""
    name = local.target.name
    is_one = InPass.parse(name).base == SCALE or is_buffer(facts, local.kind, name)
    return _due(facts, local) is not None and not is_one


def _infinite(facts: Facts, local: Local, due: Overflow) -> dict[int, torch.Tensor]:
    """The ranks that have the infinite element of the gradient, and where in their part of the
    parameter it is."""
    hit = torch.zeros(facts.problem_of(local).params[due.name].shape, dtype=torch.bool)
    hit.view(-1)[due.element] = True
    entry = facts.posed.params[due.name]
    parts = {r: take(hit, entry, case=facts.case, rank=r) for r in local.ranks}
    return {rank: part for rank, part in parts.items() if part.any()}


def _stepped_by_it(facts: Facts, local: Local, due: Overflow) -> tuple[int, ...]:
    """The ranks on which the element with the infinite gradient, of the parameter or its copy, is
    the only one that is not finite; none where any of them has it otherwise."""
    if InPass.parse(local.target.name).base.removesuffix(f".{MAIN}") != due.name:
        return ()
    owners = _infinite(facts, local, due)
    if all(torch.equal(~local.actual[rank].isfinite(), hit) for rank, hit in owners.items()):
        return tuple(owners)
    return ()


def _alone(facts: Facts, changed: Sequence[Local]) -> bool:
    """Whether one has changed on all ranks, after steps that were taken and left it right."""
    return any(
        local.at.step and not any(stays(facts, local, rank) for rank in local.wrong())
        for local in changed
    )


def _along_a_step(facts: Facts, changed: Sequence[Local]) -> bool:
    """Whether parameters, or their copies, have gone the way that the first step would have taken
    them, however far; or each of them to that side, as by gradients that are clamped."""
    if facts.spec is None or (training := facts.spec.training) is None or changed[0].at.step:
        return False
    sums, count = torch.zeros(3, dtype=torch.float64), 0
    alike = moved = 0
    problems = {problem.d: problem for problem in map(facts.problem_of, changed)}
    left = {d: unclipped(problem, training, 0)[1] for d, problem in problems.items()}
    for local in changed:
        name = InPass.parse(local.target.name).base.removesuffix(f".{MAIN}")
        began = before_step(facts, local, 0)
        after = left[facts.problem_of(local).d].get(name)
        if began is None or after is None:
            continue
        for rank in local.ranks:
            way = local.part_of(after - began, rank)
            gone = local.actual[rank] - local.part_of(began, rank)
            both = way.isfinite() & gone.isfinite()
            way, gone = way[both], gone[both]
            sums += torch.stack([(way * gone).sum(), (way * way).sum(), (gone * gone).sum()])
            count += way.numel()
            sides = (way.sign() * gone.sign())[gone != 0]
            alike, moved = alike + int((sides > 0).sum()), moved + len(sides)
    along, due, own = sums.tolist()
    one_way = along > 0 and along >= ALONG * math.sqrt(due * own)
    return (count >= ENOUGH and one_way) or (moved >= ENOUGH and alike >= ALONG * moved)
