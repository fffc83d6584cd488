"""Hypotheses about the norm of all gradients: what it would be if shards or copies were counted
otherwise, of the reference's gradients; and about what is clipped by it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from tpcheck.axes import covered
from tpcheck.case import Case
from tpcheck.causes.norms import NormCounts, NotClipped
from tpcheck.diagnosis.facts import Facts, Local, wrong_on_all_data
from tpcheck.diagnosis.own_norm import OwnGradients
from tpcheck.diagnosis.replay import unclipped, value_of
from tpcheck.placement import Sharded, by_axis, is_sharded
from tpcheck.protocol.conventions import LEARNING_RATE
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import InPass
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Counted, Kind

CODES = {
    Counted.OWN: Code.MISSING_ALL_REDUCE,
    Counted.ONE_RANK: Code.MISSING_ALL_REDUCE,
    Counted.ALL_BUT_ONE: Code.MISSING_ALL_REDUCE,
    Counted.COPIES: Code.SUMMED_TWICE,
    Counted.NAMES: Code.SUMMED_TWICE,
    Counted.SUM_OF_RANKS: Code.SUMMED_TWICE,
    Counted.ONE_AXIS: Code.MISSING_ALL_REDUCE,
    Counted.AGAIN: Code.SUMMED_TWICE,
    Counted.NEVER: Code.GRADIENT_DROPPED,
}


#: By how much nearer a norm must be to what another way to count gives than to the right one. With
#: less, a way that leaves out nearly all explains any norm; with more, coarse dtypes hide ways.
FAR = 4.0


@dataclass(frozen=True)
class _Powers:
    """The p-th powers of norms, of the infinity norm the largest numbers.

    Args:
        ranks: those that together have the gradients.
        whole: name → of the full gradient.
        own: name → rank → of its part.
        along: axis → name → rank → of the parts that the ranks have whose other coordinates are the
            rank's.
        copies: the same, and what several of them have counts for each.
        degrees: axis → how many ranks it has.
        names: name → how many names that parameter has.
        replicated: those that every rank has whole.
        cut: name → the axes along which it is sharded, if only over one rank.
    """

    order: float
    ranks: list[int]
    whole: Mapping[str, float]
    own: Mapping[str, Mapping[int, float]]
    along: Mapping[str, Mapping[str, Mapping[int, float]]]
    copies: Mapping[str, Mapping[str, Mapping[int, float]]]
    degrees: Mapping[str, int]
    names: Mapping[str, int]
    replicated: frozenset[str]
    cut: Mapping[str, set[str]]

    def norm(self, powers: list[float]) -> float:
        total = _added(powers, self.order)
        return total if self.order == math.inf else total ** (1.0 / self.order)

    def of_one(self, rank: int) -> list[float]:
        """Norms of what one rank counts."""
        return self._with_replicas([own[rank] for own in self._sharded.values()])

    def of_own(self, rank: int, share: float) -> float:
        """The norm of a rank's part, of which what all have whole counts by so much."""
        share = 1.0 if self.order == math.inf and share else share
        replicas = [share * self.whole[name] for name in self.replicated]
        return self.norm([own[rank] for own in self._sharded.values()] + replicas)

    def of_others(self, rank: int) -> list[float]:
        """Norms of what all ranks but one count."""
        others = [p for own in self._sharded.values() for r, p in own.items() if r != rank]
        return self._with_replicas(others)

    @functools.cached_property
    def _sharded(self) -> Mapping[str, Mapping[int, float]]:
        return {n: own for n, own in self.own.items() if n not in self.replicated}

    def _with_replicas(self, parts: list[float]) -> list[float]:
        """What every rank has may count as a whole, by the others' shares, or not at all."""
        replicas = [whole for name, whole in self.whole.items() if name in self.replicated]
        degree = max(map(len, self.own.values()), default=1)
        shares = (1.0,) if self.order == math.inf else (1.0, 1.0 / degree, 1.0 - 1.0 / degree)
        counted = [[share * power for power in replicas] for share in shares] + [[]]
        counted = counted if replicas else counted[:1]
        return [self.norm([*parts, *own]) for own in counted if parts or own]


def counted_otherwise(facts: Facts, local: Local) -> Diagnosis | None:
    """The norm fits once the parts of all parameters, or of one, count otherwise on the ranks where
    it is wrong."""
    if local.kind is not Kind.GRAD_NORM or facts.spec is None or facts.spec.norm is None:
        return None
    wrong = local.wrong()
    on = tuple(wrong) if len(wrong) < len(local.ranks) else None
    powers = _powers(facts, local, facts.spec.norm.order)
    every = [(local, rank) for rank in wrong]
    if len(powers.ranks) > len(local.ranks):
        every = wrong_on_all_data(facts, local)
    for way in _ways(powers):
        if wrong and all(_fits(one, rank, way.norms[rank]) for one, rank in every):
            cause = NormCounts(local.subject, way.counted, way.names, way.axis, way.of_rank, on)
            return Diagnosis(CODES[way.counted], cause)
    return None


def _fits(local: Local, rank: int, norm: float) -> bool:
    """Whether a rank has this norm. σ of what is counted may be as large as that of the powers of
    all, so that of its root is larger where less is counted."""
    expected = torch.tensor(norm, dtype=torch.float64)
    actual, right = (float(of[rank]) for of in (local.actual, local.expected))
    if abs(actual - norm) * FAR > abs(actual - right):  # of a small share almost all would fit
        return False
    share = min(1.0, norm / right) if right else 1.0
    return local.fits(expected + share * (local.actual[rank] - expected), rank, expected=expected)


class _Way(NamedTuple):
    """How gradients may be counted, of which parameters, and each rank's norm by it."""

    counted: Counted
    names: tuple[str, ...]
    norms: Mapping[int, float]
    axis: str = ""
    of_rank: int | None = None


def _ways(powers: _Powers) -> Iterator[_Way]:
    """Wrong ways to count: of all parameters, of one at a time, and sums that are taken twice."""
    ranks = powers.ranks
    every = {r: powers.norm([own[r] for own in powers.own.values()]) for r in ranks}
    yield _Way(Counted.OWN, (), every)
    on_first = {r: float(r == ranks[0]) for r in ranks}
    for shares in (dict.fromkeys(ranks, 1.0 / len(ranks)), on_first):  # of what all have
        yield _Way(Counted.OWN, (), {r: powers.of_own(r, shares[r]) for r in ranks})
    yield _Way(Counted.COPIES, (), _alike(powers.norm(_of_all(powers)), ranks))
    yield _Way(Counted.SUM_OF_RANKS, (), _alike(sum(every.values()), ranks))
    for axis, parts in [*powers.along.items(), *powers.copies.items()]:
        norms = {r: powers.norm([part[r] for part in parts.values()]) for r in ranks}
        yield _Way(Counted.ONE_AXIS, (), norms, axis)
    for rank in ranks:
        for norm in powers.of_one(rank):
            yield _Way(Counted.ONE_RANK, (), _alike(norm, ranks), of_rank=rank)
    for rank in ranks if len(ranks) > 2 else ():
        for norm in powers.of_others(rank):
            yield _Way(Counted.ALL_BUT_ONE, (), _alike(norm, ranks), of_rank=rank)
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
    for axis, degree in powers.degrees.items():
        along = {name for name, axes in powers.cut.items() if axis in axes}
        for twice in (powers.whole.keys(), powers.cut.keys(), along):
            counted = [(degree if n in twice else 1) * own for n, own in powers.whole.items()]
            yield _Way(Counted.AGAIN, (), _alike(powers.norm(counted), ranks), axis)


def _added(powers: list[float], order: float) -> float:
    """Of several parts together."""
    return max(powers, default=0.0) if order == math.inf else sum(powers)


def _of_all(powers: _Powers) -> list[float]:
    return [own[r] for own in powers.own.values() for r in powers.ranks]


def _alike(norm: float, ranks: list[int]) -> Mapping[int, float]:
    return dict.fromkeys(ranks, norm)


def _powers(facts: Facts, local: Local, order: float) -> _Powers:
    """Of the gradients that the ranks had, which the norm was judged by; of one that not all of
    them had, of the reference's."""
    case, gradients = facts.case, facts.gradients(local.ranks, local.at.step, order)
    problem, ranks = gradients.problem, gradients.ranks
    whole: dict[str, float] = {}
    own: dict[str, dict[int, float]] = {}
    axes = [axis for axis, degree in case.mesh.items() if degree > 1]
    along: dict[str, dict[str, dict[int, float]]] = {a: {} for a in axes if len(axes) > 1}
    copies: dict[str, dict[str, dict[int, float]]] = {axis: {} for axis in along}
    replicated, cut = set(), {}
    for target in gradients.targets:
        name = InPass.parse(target.name).base
        held = gradients.held(target) or gradients.expected(target)
        of = partial(_power, gradients, target, held)
        whole[name] = of(ranks)
        own[name] = {r: of([r]) for r in ranks}
        if not is_sharded(target.entry, case) and len(held) == len(ranks):
            replicated.add(name)
        shards = [a for a, own in by_axis(target.entry).items() if isinstance(own, Sharded)]
        if shards:
            cut[name] = set[str]().union(*(covered(axis, case) for axis in shards))
        for axis, parts in along.items():  # together they have what is cut along it
            beside = {r: _along(case, axis, r, ranks) for r in ranks}
            parts[name] = {r: of(beside[r]) for r in ranks}
            each = {r: [own[name][k] for k in beside[r]] for r in ranks}
            copies[axis][name] = {r: _added(each[r], order) for r in ranks}
    every = [id(tensor) for tensor in problem.params.values()]
    names = {name: every.count(id(problem.params[name])) for name in whole}
    known = order, ranks, whole, own, along, copies
    degrees = {axis: case.mesh[axis] for axis in axes}
    return _Powers(*known, degrees, names, frozenset(replicated), cut)


def _power(
    gradients: OwnGradients, target: Target, held: Mapping[int, Tensor], ranks: list[int]
) -> float:
    """What these ranks have of a gradient, each element once, to the power of p."""
    return float(gradients.counted(target, held, ranks)[0])


def _along(case: Case, axis: str, rank: int, ranks: list[int]) -> list[int]:
    """The ranks that differ from this one along the axis alone."""
    own = case.coordinates(rank)
    return [r for r in ranks if case.coordinates(r) | {axis: own[axis]} == own]


def not_clipped(facts: Facts, local: Local) -> Diagnosis | None:
    """Some ranks have what a step by the gradients as they were leaves, and the others what they
    should."""
    problem, wrong = facts.problem_of(local), local.wrong()
    if not problem.most or not wrong or len(wrong) == len(local.ranks):
        return None
    stepped = _unclipped(facts, local)
    if stepped is None or not all(local.holds(stepped, rank) for rank in wrong):
        return None
    return Diagnosis(Code.REPLICAS_DIFFER, NotClipped(local.subject, tuple(wrong)))


def _unclipped(facts: Facts, local: Local) -> Tensor | None:
    """What a step by gradients that were not clipped leaves of a parameter, or of what an optimizer
    keeps of it."""
    problem, training = facts.problem_of(local), facts.spec and facts.spec.training
    name = InPass.parse(local.target.name).base
    if training and training.scaling is None and local.kind in (Kind.PARAM, Kind.OPTIMIZER_STATE):
        kept, left = unclipped(problem, training, local.at.step)
        found = (left if local.kind is Kind.PARAM else kept).get(name)
        return None if found is None else found.to(local.target.dtype).double()
    gradient = value_of(problem, Kind.PARAM_GRAD, name, 0)
    if training or local.kind is not Kind.PARAM or gradient is None or name not in problem.params:
        return None
    return problem.params[name].double() - LEARNING_RATE * gradient
