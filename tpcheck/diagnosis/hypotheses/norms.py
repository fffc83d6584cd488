"""Hypotheses about the norm of all gradients: what it would be if shards or copies were counted
otherwise, of the gradients that the ranks had."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from tpcheck.causes.norms import NormCounts
from tpcheck.diagnosis.exchanged import Exchanged, exchanged, in_backward, spanned
from tpcheck.diagnosis.facts import Facts, Local, on_all_data
from tpcheck.diagnosis.powers import Powers, Span, powers_of
from tpcheck.event import Event
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Counted, Kind, Phase

CODES = {
    Counted.OWN: Code.MISSING_ALL_REDUCE,
    Counted.ONE_RANK: Code.MISSING_ALL_REDUCE,
    Counted.ALL_BUT_ONE: Code.MISSING_ALL_REDUCE,
    Counted.COPIES: Code.SUMMED_TWICE,
    Counted.NAMES: Code.SUMMED_TWICE,
    Counted.SUM_OF_RANKS: Code.SUMMED_TWICE,
    Counted.ONE_AXIS: Code.MISSING_ALL_REDUCE,
    Counted.SOME_RANKS: Code.MISSING_ALL_REDUCE,
    Counted.AGAIN: Code.SUMMED_TWICE,
    Counted.MEAN: Code.AVERAGED_NOT_SUMMED,
    Counted.NEVER: Code.GRADIENT_DROPPED,
}


#: By how much nearer a norm must be to what another way to count gives than to the right one. With
#: less, a way that leaves out nearly all explains any norm; with more, coarse dtypes hide ways.
FAR = 4.0


def counted_otherwise(facts: Facts, local: Local) -> Diagnosis | None:
    """The norm fits once the parts of all parameters, or of one, count otherwise on the ranks where
    it is wrong, and what the ranks exchanged does not speak against that."""
    if local.kind is not Kind.GRAD_NORM or facts.spec is None or facts.spec.norm is None:
        return None
    every = on_all_data(facts, local)
    wrong = [(i, rank) for i, one in enumerate(every) for rank in one.wrong()]

    def fits(ways: tuple[_Way, ...]) -> bool:
        return all(_fits(every[i], rank, ways[i].norms[rank]) for i, rank in wrong)

    found = filter(fits, _on_each(facts, every, _exchanged(facts)) if wrong else ())
    if (each := next(found, None)) is None:
        return None
    first = each[0]
    same = (ways[0] for ways in found if first.axis)
    axes = [w.axis for w in (first, *same) if (w.counted, w.names) == (first.counted, first.names)]
    right = ((i, r) for i, one in enumerate(every) for r in one.ranks if (i, r) not in wrong)
    apart = any(not every[i].fits(_number(each[i].norms[r]), r) for i, r in right)
    cause = NormCounts(
        local.subject,
        first.counted,
        first.names,
        tuple(dict.fromkeys(filter(None, axes))),
        None if first.axis else first.group,
        first.of_rank,
        tuple(sorted(rank for _, rank in wrong)) if apart else None,
    )
    return Diagnosis(CODES[first.counted], cause)


def _exchanged(facts: Facts) -> Exchanged:
    """What ranks sent each other on the way to the norm: when they clipped, and what is one number
    before; where that is nothing, all that they did."""
    sent = exchanged(facts, lambda event: event.clips or _is_a_number(event))
    return sent if any((sent.groups or {}).values()) else in_backward(facts)


def _is_a_number(event: Event) -> bool:
    """On the way to gradients: `finalize` may have taken a norm already."""
    return event.phase is Phase.BACKWARD and event.elements == 1


def _on_each(facts: Facts, every: list[Local], sent: Exchanged) -> Iterator[tuple[_Way, ...]]:
    """Ways to count, on the ranks of each dp coordinate."""
    assert facts.spec is not None and facts.spec.norm is not None
    order, groups = facts.spec.norm.order, sent.parts()
    powers = [powers_of(facts, every[0], order, groups)]
    if len(powers[0].ranks) > len(every[0].ranks):  # they are of all data
        yield from ((way,) * len(every) for way in _ways(powers[0], sent))
        return
    powers += [powers_of(facts, one, order, groups) for one in every[1:]]
    yield from zip(*(_ways(of, sent) for of in powers), strict=True)


def _fits(local: Local, rank: int, norm: float) -> bool:
    """Whether a rank has this norm. σ of what is counted may be as large as that of the powers of
    all, so that of its root is larger where less is counted."""
    expected = _number(norm)
    actual, right = (float(of[rank]) for of in (local.actual, local.expected))
    if abs(actual - norm) * FAR > abs(actual - right):  # of a small share almost all would fit
        return False
    share = min(1.0, norm / right) if right else 1.0
    return local.fits(expected + share * (local.actual[rank] - expected), rank, expected=expected)


def _number(norm: float) -> Tensor:
    return torch.tensor(norm, dtype=torch.float64)


class _Way(NamedTuple):
    """How gradients may be counted, of which parameters, and each rank's norm by it."""

    counted: Counted
    names: tuple[str, ...]
    norms: Mapping[int, float]
    axis: str = ""
    group: tuple[int, ...] | None = None
    of_rank: int | None = None


def _ways(powers: Powers, sent: Exchanged) -> Iterator[_Way]:
    """Wrong ways to count: of all parameters, of one at a time, and sums that are taken twice, or
    divided."""
    ranks = powers.ranks
    every = {r: powers.norm([own[r] for own in powers.own.values()]) for r in ranks}
    yield _Way(Counted.OWN, (), every)
    on_first = {r: float(r == ranks[0]) for r in ranks}
    for shares in (dict.fromkeys(ranks, 1.0 / len(ranks)), on_first):  # of what all have
        yield _Way(Counted.OWN, (), {r: powers.of_own(r, shares[r]) for r in ranks})
    yield _Way(Counted.COPIES, (), _alike(powers.norm(_of_all(powers)), ranks))
    yield _Way(Counted.SUM_OF_RANKS, (), _alike(sum(every.values()), ranks))
    yield from (way for way in _along_one(powers) if sent.may_along(way.axis))
    for rank in ranks:
        for norm in powers.of_one(rank):
            yield _Way(Counted.ONE_RANK, (), _alike(norm, ranks), of_rank=rank)
    for rank in ranks if len(ranks) > 2 else ():
        for norm in powers.of_others(rank):
            yield _Way(Counted.ALL_BUT_ONE, (), _alike(norm, ranks), of_rank=rank)
    yield from (w for w in _of_one_name(powers) if not w.axis or sent.may_along(w.axis))
    for span in powers.spans:
        if _may_again(span, sent):
            yield from _again(powers, span)
    yield from (way for way in _divided(powers) if sent.may_along(way.axis))
    yield from _over_reached(powers, sent)


def _along_one(powers: Powers) -> Iterator[_Way]:
    """Along one axis alone; what others have whole may count by a share, or on each."""
    ranks, shared = powers.ranks, []
    for axis, parts in powers.along.items():
        share = powers.shares[axis]
        shared.append((axis, {n: {r: share[n] * of[r] for r in ranks} for n, of in parts.items()}))
    for axis, of in [*powers.along.items(), *powers.copies.items(), *shared]:
        norms = {r: powers.norm([part[r] for part in of.values()]) for r in ranks}
        yield _Way(Counted.ONE_AXIS, (), norms, axis)


def _of_one_name(powers: Powers) -> Iterator[_Way]:
    ranks = powers.ranks
    for name, own in powers.own.items():
        rest = [whole for other, whole in powers.whole.items() if other != name]
        yield _Way(Counted.OWN, (name,), {r: powers.norm([*rest, own[r]]) for r in ranks})
        for axis, parts in powers.along.items():
            norms = {r: powers.norm([*rest, parts[name][r]]) for r in ranks}
            yield _Way(Counted.ONE_AXIS, (name,), norms, axis)
        copies = powers.norm([*rest, *(own[r] for r in ranks)])
        yield _Way(Counted.COPIES, (name,), _alike(copies, ranks))
        named = powers.norm([*rest, *[powers.whole[name]] * powers.names[name]])
        yield _Way(Counted.NAMES, (name,), _alike(named, ranks))
        for rank in ranks:
            norm = powers.norm([*rest, own[rank]])
            yield _Way(Counted.ONE_RANK, (name,), _alike(norm, ranks), of_rank=rank)
        yield _Way(Counted.NEVER, (name,), _alike(powers.norm(rest), ranks))


def _may_again(span: Span, sent: Exchanged) -> bool:
    """Whether ranks may have added up over these once more: where the sum over them is due, they
    did so in each step besides."""
    times = sent.along(span.axis) if span.axis else sent.among(span.ranks)
    return times is None or times > (sent.steps if span.cut else 0)


def _again(powers: Powers, span: Span) -> Iterator[_Way]:
    degree, where = len(span.ranks), (span.axis, span.ranks)
    for twice in (powers.whole.keys(), powers.cut, span.cut):
        counted = [(degree if n in twice else 1) * own for n, own in powers.whole.items()]
        yield _Way(Counted.AGAIN, (), _alike(powers.norm(counted), powers.ranks), *where)
    norm = degree * powers.norm([*powers.whole.values()])
    yield _Way(Counted.SUM_OF_RANKS, (), _alike(norm, powers.ranks), *where)


def _over_reached(powers: Powers, sent: Exchanged) -> Iterator[_Way]:
    """Over ranks that none of the axes has: replicas in the place of shards, say."""
    case, first = sent.case, sent.reached(powers.ranks[0])
    if not 1 < len(first) < len(powers.ranks):
        return
    sizes = {axis: case.mesh[axis] for axis in spanned(case, first)}
    each = {r: powers.of_some(sent.reached(r), sizes) for r in powers.ranks}
    for norms in zip(*each.values(), strict=True):
        by_rank = dict(zip(each, norms, strict=True))
        yield _Way(Counted.SOME_RANKS, (), by_rank, group=tuple(first))


def _divided(powers: Powers) -> Iterator[_Way]:
    """The norms of the ranks along an axis added up, or the mean of their powers taken."""
    for axis, parts in powers.split.items():
        degree = len(next(iter(parts.values()), ()))
        norms = [powers.norm([part[k] for part in parts.values()]) for k in range(degree)]
        yield _Way(Counted.SUM_OF_RANKS, (), _alike(sum(norms), powers.ranks), axis)
    for span in powers.spans if powers.order != math.inf else ():
        if span.axis and span.cut:
            mean = powers.norm([own / len(span.ranks) for own in powers.whole.values()])
            yield _Way(Counted.MEAN, (), _alike(mean, powers.ranks), span.axis)


def _of_all(powers: Powers) -> list[float]:
    return [own[r] for own in powers.own.values() for r in powers.ranks]


def _alike(norm: float, ranks: list[int]) -> Mapping[int, float]:
    return dict.fromkeys(ranks, norm)
