"""Hypotheses about what a candidate's checkpoint of training left: parameters and the optimizer's
state as they were loaded, beside what the reference has after the step that was saved."""

from __future__ import annotations

import torch
from torch import Tensor

from tpcheck.causes.loaded import LoadedAnother, LoadedNothing, LoadedScaled
from tpcheck.diagnosis.facts import Facts, values
from tpcheck.diagnosis.hypotheses.loaded import Loaded, of_numbers
from tpcheck.evidence import Absent
from tpcheck.placement import summed, take
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import FIRST, InPass, Key
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Kind


def misresumed(facts: Facts) -> Diagnosis | None:
    """The first tensor that is not what was saved, on one rank."""
    if not facts.resumes:
        return None
    of_state = (Kind.PARAM, Kind.OPTIMIZER_STATE)
    for mismatch in values(facts.result):
        if mismatch.kind in of_state and mismatch.name.at == FIRST:
            return _misloaded(facts, mismatch)
    return None


def _misloaded(facts: Facts, mismatch: Mismatch) -> Diagnosis | None:
    target, rank = facts.target(mismatch), mismatch.rank
    if isinstance(mismatch.detail, Absent):
        return Diagnosis(Code.UNWRITTEN_MEMORY, LoadedNothing(mismatch.tensor, rank))
    got = facts.dumps.get(rank, {}).get(Key(mismatch.kind, mismatch.tensor))
    if target is None or got is None or not got.is_floating_point():
        return None
    want = take(target.value, summed(target.entry), case=facts.case, rank=rank)
    if got.shape != want.shape:
        return None
    if not got.any() and want.any() and not _is_of_another_rank(facts, target, rank, got):
        return Diagnosis(Code.UNWRITTEN_MEMORY, LoadedNothing(mismatch.tensor, rank))
    if want.numel() < 2:  # any number is some other one, but for rounding
        return _number(mismatch, float(got.sum()), float(want.sum()))
    loaded = Loaded(mismatch.tensor, rank, snapped(got.double(), target), want, target.value)
    return _of_another(facts, mismatch, got.double()) or of_numbers(facts, loaded)


def _is_of_another_rank(facts: Facts, target: Target, rank: int, got: Tensor) -> bool:
    """Whether these zeros are what another rank is to have, of a gradient that is zero there."""
    cut = (
        take(target.value, summed(target.entry), case=facts.case, rank=other)
        for other in range(facts.case.world_size)
        if other != rank
    )
    return any(part.shape == got.shape and not part.any() for part in cut)


def _number(mismatch: Mismatch, got: float, want: float) -> Diagnosis | None:
    """One number, a count of steps, say, is another one than was saved, by more than rounding."""
    if want == 0.0 or abs(got / want - 1.0) < 0.01:
        return None
    cause = LoadedScaled(mismatch.tensor, mismatch.rank, got / want)
    return Diagnosis(Code.UNCLASSIFIED, cause)


def _of_another(facts: Facts, mismatch: Mismatch, got: Tensor) -> Diagnosis | None:
    """It is what the rank should have of another parameter."""
    case, rank = facts.case, mismatch.rank
    for other in facts.posed.problems[facts.data_of(mismatch)].targets:
        same = other.kind is mismatch.kind and InPass.parse(other.name).at == FIRST
        if not same or other.name == mismatch.tensor:
            continue
        entry = summed(other.entry)
        own, sigma = (
            take(t, entry, case=case, rank=rank) for t in (other.value, other.spread.sigma)
        )
        bound = other.spread.elementwise_limit(own.numel()) * sigma
        if own.shape == got.shape and bool(((got - own).abs() <= bound).all()):
            cause = LoadedAnother(mismatch.tensor, rank, (other.name,))
            return Diagnosis(Code.SHARD_ORDER, cause)
    return None


def snapped(got: Tensor, target: Target) -> Tensor:
    """What was loaded; a number that is one of the reference's, but for rounding, as that one."""
    known, order = target.value.flatten().sort()
    bound = (target.spread.elementwise_limit(known.numel()) * target.spread.sigma).flatten()[order]
    above = torch.searchsorted(known, got.contiguous()).clamp(max=known.numel() - 1)
    below = (above - 1).clamp(min=0)
    nearer = (known[above] - got).abs() < (known[below] - got).abs()
    at = torch.where(nearer, above, below)
    return torch.where((known[at] - got).abs() <= bound[at], known[at], got)
