"""What ranks may add to the norm of all gradients: powers of the norms of their parts."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import Tensor

from tpcheck.axes import along, covered
from tpcheck.case import Case
from tpcheck.diagnosis.exchanged import spanned
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.own_norm import OwnGradients
from tpcheck.placement import Entry, Sharded, by_axis, is_sharded
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import InPass


class Span(NamedTuple):
    """Ranks that may add up what they have.

    Args:
        axis: of the mesh, along which they are; "" where they are some of those along one.
        ranks: the first of them, and those with it.
        cut: parameters of which each of them has another part.
    """

    axis: str
    ranks: tuple[int, ...]
    cut: frozenset[str]


@dataclass(frozen=True)
class Powers:
    """The p-th powers of norms, of the infinity norm the largest numbers.

    Args:
        ranks: those that together have the gradients.
        whole: name → of the full gradient.
        own: name → rank → of its part.
        along: axis → name → rank → of the parts that the ranks have whose other coordinates are the
            rank's.
        copies: the same, and what several of them have counts for each.
        split: axis → name → of what the ranks with each coordinate along it have together.
        shares: axis → name → one over the ranks beside those along it that have the same.
        spans: sets of ranks whose parts may be added up: those along each axis, and others.
        cut: those that are sharded, if only over one rank → along which axes.
        names: name → how many names that parameter has.
        replicated: those that every rank has whole.
    """

    order: float
    ranks: list[int]
    whole: Mapping[str, float]
    own: Mapping[str, Mapping[int, float]]
    along: Mapping[str, Mapping[str, Mapping[int, float]]]
    copies: Mapping[str, Mapping[str, Mapping[int, float]]]
    split: Mapping[str, Mapping[str, list[float]]]
    shares: Mapping[str, Mapping[str, float]]
    spans: list[Span]
    cut: Mapping[str, set[str]]
    names: Mapping[str, int]
    replicated: frozenset[str]

    def norm(self, powers: list[float]) -> float:
        total = added(powers, self.order)
        return total if self.order == math.inf else total ** (1.0 / self.order)

    def of_one(self, rank: int) -> list[float]:
        """Norms of what one rank counts."""
        return self._with_replicas([own[rank] for own in self._sharded.values()])

    def of_own(self, rank: int, share: float) -> float:
        """The norm of a rank's part, of which what all have whole counts by so much."""
        share = 1.0 if self.order == math.inf and share else share
        replicas = [share * self.whole[name] for name in self.replicated]
        return self.norm([own[rank] for own in self._sharded.values()] + replicas)

    def of_some(self, some: list[int], spread: Mapping[str, int]) -> list[float]:
        """Norms of what some ranks have together: what they have whole along one of these axes,
        of such sizes, counts by its share, or on each."""
        every = {name: [own[rank] for rank in some] for name, own in self.own.items()}
        rest = {name: spread.keys() - self.cut.get(name, set()) for name in every}
        shares = {n: 1.0 / math.prod(spread[axis] for axis in axes) for n, axes in rest.items()}
        parts = [[shares[n] * p for n, each in every.items() for p in each]]
        return [self.norm(counted) for counted in (*parts, [p for e in every.values() for p in e])]

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


def added(powers: list[float], order: float) -> float:
    """Of several parts together."""
    return max(powers, default=0.0) if order == math.inf else sum(powers)


def powers_of(
    facts: Facts, local: Local, order: float, groups: Iterable[tuple[int, ...]] = ()
) -> Powers:
    """Of the gradients that the ranks had, which the norm was judged by; of one that not all of
    them had, of the reference's.

    Args:
        groups: some of the ranks along one axis, over which they exchanged something.
    """
    case, gradients = facts.case, facts.gradients(local.ranks, local.at.step, order)
    problem, ranks = gradients.problem, gradients.ranks
    whole: dict[str, float] = {}
    own: dict[str, dict[int, float]] = {}
    every = [axis for axis, degree in case.mesh.items() if degree > 1]
    axes = every if len(every) > 1 else []
    beside_on: dict[str, dict[str, dict[int, float]]] = {axis: {} for axis in axes}
    copies: dict[str, dict[str, dict[int, float]]] = {axis: {} for axis in axes}
    split: dict[str, dict[str, list[float]]] = {axis: {} for axis in every}
    shares: dict[str, dict[str, float]] = {axis: {} for axis in axes}
    replicated, entries = set(), {}
    spread = spanned(case, ranks)
    for target in gradients.targets:
        name = InPass.parse(target.name).base
        held = gradients.held(target) or gradients.expected(target)
        of = partial(_power, gradients, target, held)
        whole[name] = of(ranks)
        own[name] = {r: of([r]) for r in ranks}
        if not is_sharded(target.entry, case) and len(held) == len(ranks):
            replicated.add(name)
        entries[name] = target.entry
        whole_along = spread - _cut_along(target.entry, case)
        for axis, parts in beside_on.items():  # together they have what is cut along it
            beside = {r: _along(case, axis, r, ranks) for r in ranks}
            parts[name] = {r: of(beside[r]) for r in ranks}
            each = {r: [own[name][k] for k in beside[r]] for r in ranks}
            copies[axis][name] = {r: added(each[r], order) for r in ranks}
            alike = math.prod(case.mesh[other] for other in whole_along - {axis})
            shares[axis][name] = 1.0 if order == math.inf else 1.0 / alike
        for axis, parts_of in split.items():
            parts_of[name] = [of(_at(case, axis, k, ranks)) for k in range(case.mesh[axis])]
    tensors = [id(tensor) for tensor in problem.params.values()]
    names = {name: tensors.count(id(problem.params[name])) for name in whole}
    world = [*range(case.world_size)]
    beside_first = [(axis, tuple(_along(case, axis, ranks[0], world))) for axis in every]
    spans = [
        Span(axis, group, frozenset(n for n, e in entries.items() if _is_cut(e, case, group)))
        for axis, group in [*beside_first, *(("", group) for group in groups)]
    ]
    cut = {name: _cut_along(entry, case) for name, entry in entries.items() if _shards(entry)}
    known = order, ranks, whole, own, beside_on, copies, split, shares, spans
    return Powers(*known, cut, names, frozenset(replicated))


def _shards(entry: Entry) -> list[str]:
    """The axes along which it is sharded, if only over one rank."""
    return [axis for axis, own in by_axis(entry).items() if isinstance(own, Sharded)]


def _cut_along(entry: Entry, case: Case) -> set[str]:
    """Those of the case."""
    return set[str]().union(*(covered(axis, case) for axis in _shards(entry)))


def _is_cut(entry: Entry, case: Case, ranks: Iterable[int]) -> bool:
    """Whether these ranks have other shards of it."""
    return any(len({along(axis, case, r) for r in ranks}) > 1 for axis in _shards(entry))


def _at(case: Case, axis: str, coordinate: int, ranks: list[int]) -> list[int]:
    """The ranks that are there on an axis; along one on which all are alike, all of them."""
    there = [r for r in ranks if case.coordinates(r)[axis] == coordinate]
    return there or ranks


def _power(
    gradients: OwnGradients, target: Target, held: Mapping[int, Tensor], ranks: list[int]
) -> float:
    """What these ranks have of a gradient, each element once, to the power of p."""
    return float(gradients.counted(target, held, ranks)[0])


def _along(case: Case, axis: str, rank: int, ranks: list[int]) -> list[int]:
    """The ranks that differ from this one along the axis alone."""
    own = case.coordinates(rank)
    return [r for r in ranks if case.coordinates(r) | {axis: own[axis]} == own]
