"""Hypotheses about what a loss of sharded logits is computed from: statistics of each token's
columns, which cross ranks. They hold for whatever loss the reference has: nothing here knows its
formula.

Legend: T tokens, W columns, R degree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from tpcheck.causes.losses import (
    CountedOnEachRank,
    MeanOfOthers,
    PaddingCounted,
    StatisticOfOwnPart,
)
from tpcheck.diagnosis.facts import Facts, Local, local_of
from tpcheck.diagnosis.hypotheses.labelled import Labelled, labelled
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.names import InPass
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Statistic

STATISTICS: Mapping[Statistic, Callable[[Tensor], Tensor]] = {
    Statistic.SUM_OF_EXPONENTIALS: partial(torch.logsumexp, dim=-1),
    Statistic.SUM: partial(torch.sum, dim=-1),
    Statistic.LARGEST: partial(torch.amax, dim=-1),
    Statistic.MEAN: partial(torch.mean, dim=-1),
    Statistic.SQUARE_OF_LOG: lambda logits: logits.logsumexp(-1).square(),
}
#: Statistics that join the loss with a weight → the sign of one that is below 1, as of smoothed
#: labels; 0 for any. Without it two ranks, of one number each, are explained too easily.
WEIGHED = {Statistic.SUM: 0, Statistic.MEAN: -1, Statistic.SQUARE_OF_LOG: 1}


def statistics(facts: Facts, local: Local) -> Diagnosis | None:
    """Each rank is off as it would be with a statistic of its own columns; or all are as if Σ exp
    had every column R times, or columns that belong to no id."""
    found = labelled(facts, local) if local.kind.is_output else None
    if found is None:
        return None
    for reduced in _reductions(local, found):
        named = _of_own_part(local, found, reduced) or _of_too_many(local, found, reduced)
        if named is not None:
            return named
    return None


Reduced = Callable[[Tensor], Tensor]  # one number per token [T] → of the loss's shape


def _reductions(local: Local, found: Labelled) -> Iterator[Reduced]:
    """The ways in which numbers of tokens may have become the loss: each its own, or the sum, or
    the mean over those that count."""
    shape, counted = local.target.value.shape, found.counted
    if shape.numel() == counted.numel():
        yield lambda each: (each * counted).reshape(shape)
    if shape.numel() == 1 < counted.numel():
        yield lambda each: (each * counted).sum().reshape(shape)
        yield lambda each: ((each * counted).sum() / counted.sum()).reshape(shape)


def _of_own_part(local: Local, found: Labelled, reduced: Reduced) -> Diagnosis | None:
    columns = {r: own[found.used[own]] for r, own in found.held.items()}
    if any(not own.numel() for own in columns.values()):
        return None
    for statistic, of in STATISTICS.items():
        whole = of(found.logits[:, found.used])
        off = {r: reduced(of(found.logits[:, own]) - whole) for r, own in columns.items()}
        if _explained(local, _scaled(local, off, statistic)):
            cause = StatisticOfOwnPart(local.subject, found.name, statistic)
            return Diagnosis(Code.MISSING_ALL_REDUCE, cause)
    return None


def _scaled(local: Local, off: Mapping[int, Tensor], statistic: Statistic) -> Mapping[int, Tensor]:
    """What the ranks would be off by. A sum joins the loss with a weight, one for all ranks; what
    is subtracted before the exponentials leaves the ranks apart by its own differences, and all of
    them off by something else besides."""
    apart = torch.stack(list(off.values()))
    gaps = torch.stack([local.actual[r] - local.expected[r] for r in off])
    if statistic in WEIGHED:
        weight = (apart * gaps).sum() / (apart * apart).sum().clamp_min(1e-300)
        sign = WEIGHED[statistic]
        may_be = not sign or 0 < sign * weight < 1
        return {r: weight * may_be * one for r, one in off.items()}
    if statistic is Statistic.LARGEST:
        common = (gaps - apart).mean(0)
        return {r: one + common for r, one in off.items()}
    return off


def _explained(local: Local, off: Mapping[int, Tensor]) -> bool:
    """Whether the ranks are off by this, which is not the same for all of them."""
    return _apart_so(local, off) and all(
        bool(one.isfinite().all())
        and local.fits(local.actual[r], r, expected=local.expected[r] + one)
        for r, one in off.items()
    )


#: How far the differences between ranks may be from what they are to be, of these. With more, wide
#: bounds explain ranks that agree by a cause that has them differ; with less, rounding hides it.
APART = 0.5


def _apart_so(local: Local, off: Mapping[int, Tensor]) -> bool:
    """Whether the ranks differ from one another, and as they would if they were off by this:
    whatever the bounds are, ranks that agree do not."""
    wanted = torch.stack(list(off.values()))
    found = torch.stack([local.actual[r] - local.expected[r] for r in off])
    wanted, found = wanted - wanted.mean(0), found - found.mean(0)
    return bool(wanted.any()) and bool((found - wanted).norm() < APART * wanted.norm())


def _of_too_many(local: Local, found: Labelled, reduced: Reduced) -> Diagnosis | None:
    tp, wrong = local.case.tp, local.wrong()
    every_rank = reduced(torch.full(found.ids.shape, float(tp), dtype=torch.float64).log())
    if all(local.fits(local.actual[r], r, expected=local.expected[r] + every_rank) for r in wrong):
        return Diagnosis(Code.SUMMED_TWICE, CountedOnEachRank(local.subject, tp))
    padding = int((~found.used).sum())
    of = STATISTICS[Statistic.SUM_OF_EXPONENTIALS]
    more = reduced(of(found.logits) - of(found.logits[:, found.used]))
    if padding and all(
        local.fits(local.actual[r], r, expected=local.expected[r] + more) for r in wrong
    ):
        return Diagnosis(Code.VOCAB_MASK, PaddingCounted(local.subject, found.name, padding))
    return None


def mean_of_others(facts: Facts, local: Local) -> Diagnosis | None:
    """All ranks have the loss, and the gradients that follow from it, times n / m: it is the sum
    over the n tokens that count, divided by m, the number of all of them."""
    # of a wrong loss that all ranks have: the bounds of a half precision may be as wide
    at_once = local.target.value.numel() == 1 and _agree(local)
    problem = facts.posed.problems[facts.case.dp_coordinate(local.ranks[0])]
    if not local.kind.is_output or not at_once or facts.case.microbatches > 1 or local.at.step:
        return None
    ids = [n for n, tensor in problem.inputs[0].items() if not tensor.is_floating_point()]
    if not ids:
        return None
    targets = problem.inputs[0][ids[-1]]
    counted, tokens = int((targets >= 0).sum()), targets.numel()
    if not 0 < counted < tokens or not _all_times(facts, local, problem, counted / tokens):
        return None
    cause = MeanOfOthers(local.subject, ids[-1], counted, tokens)
    return Diagnosis(Code.AVERAGED_NOT_SUMMED, cause)


def _agree(local: Local) -> bool:
    first = local.actual[local.ranks[0]]
    return all(torch.equal(local.actual[rank], first) for rank in local.ranks)


def _all_times(facts: Facts, local: Local, problem: Problem, factor: float) -> bool:
    """Whether the ranks have the loss, and each gradient that follows from it, times this."""
    of_loss = [
        local_of(facts, target, problem.d)
        for target in problem.targets
        if target.kind.is_gradient and not InPass.parse(target.name).at.step
    ]
    known = [local, *(one for one in of_loss if one is not None)]
    return all(one.holds(factor * one.target.value, r) for one in known for r in one.ranks)
