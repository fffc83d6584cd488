"""Which groups of ranks may have added something up, as their traces say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tpcheck.case import Case
from tpcheck.diagnosis.facts import Facts
from tpcheck.event import Event
from tpcheck.vocabulary import Phase

#: What a reduction that adds nothing up does.
_NO_SUM = {"min", "max", "product", "band", "bor", "bxor"}


@dataclass(frozen=True)
class Exchanged:
    """What ranks sent each other that they may have added up.

    Args:
        steps: in how many they did.
        groups: rank → [collective]: over which ranks; None where that is not known of all.
    """

    case: Case
    steps: int
    groups: Mapping[int, Sequence[tuple[int, ...]]] | None

    def along(self, axis: str) -> int | None:
        """How often a rank did over a group with ranks along this axis; None where nothing is
        known."""
        return self._most(lambda group: axis in spanned(self.case, group))

    def among(self, ranks: Sequence[int]) -> int | None:
        """The same over a group with all of these."""
        return self._most(lambda group: set(ranks) <= set(group))

    def may_along(self, axis: str) -> bool:
        """Whether that can be: it was, or nothing is known."""
        return self.along(axis) != 0

    def may_beyond(self, axis: str) -> bool:
        """Whether that can be over ranks along this axis and others; or nothing is known."""
        return self._most(lambda group: {axis} < spanned(self.case, group)) != 0

    def reached(self, rank: int) -> list[int]:
        """The ranks of which it may have something, by way of others, too, and itself."""
        found, new = {rank}, {rank}
        while new:
            groups = (group for own in new for group in (self.groups or {}).get(own, ()))
            new = {other for group in groups for other in group} - found
            found |= new
        return sorted(found)

    def parts(self) -> list[tuple[int, ...]]:
        """Groups of the first rank with some of the ranks along one axis: of replicas, say, or of
        shards, as a candidate's own mesh has them."""
        first = dict.fromkeys(next(iter((self.groups or {}).values()), ()))
        axes = {group: spanned(self.case, group) for group in first}
        return [g for g, own in axes.items() if len(own) == 1 and len(g) < self._size(*own)]

    def _size(self, axis: str) -> int:
        return self.case.mesh[axis]

    def _most(self, is_one: Callable[[tuple[int, ...]], bool]) -> int | None:
        if self.groups is None:
            return None
        return max(sum(map(is_one, groups)) for groups in self.groups.values())


def exchanged(facts: Facts, where: Callable[[Event], bool]) -> Exchanged:
    """By the collectives that are there, of all passes and steps."""
    trace, ended = facts.again.trace, facts.again.ended
    own = {
        rank: [event.group for event in events if where(event) and _may_add(event)]
        for rank, events in zip(ended or range(len(trace)), trace, strict=False)
    }
    steps = max(1, len(facts.posed.problems[0].most))
    known = own and all(group for groups in own.values() for group in groups)
    return Exchanged(facts.case, steps, own if known else None)


def at_all(facts: Facts) -> Exchanged:
    return exchanged(facts, lambda event: True)


def in_backward(facts: Facts) -> Exchanged:
    """On the way to gradients."""
    return exchanged(facts, lambda event: event.phase is Phase.BACKWARD)


def spanned(case: Case, group: Sequence[int]) -> set[str]:
    """The axes of the mesh along which these ranks differ."""
    where = [case.coordinates(rank) for rank in group]
    return {axis for axis in case.mesh if len({at[axis] for at in where}) > 1}


def _may_add(event: Event) -> bool:
    """Whether ranks may add up what they have by it: what is gathered can be, too."""
    return event.op != "barrier" and event.reduce_op not in _NO_SUM
