"""What share of a tensor was judged: of which elements a wrong value could have been told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tpcheck.vocabulary import Kind, Unjudged

#: Why elements were not judged where all were: one for all, of which a long run has 100,000.
_ALL: Mapping[Unjudged, int] = {}


@dataclass(frozen=True, slots=True)
class Judged:
    """How many elements of one tensor were judged, over its passes, dp coordinates and cases.

    Args:
        elements, judged: of the full tensor, not of its shards.
        cases: in which it is; of a single case, 1.
        judged_in: those in which any element of it was judged, or in which it is empty.
        why: the reasons of those that were not → how many elements.
    """

    elements: int = 0
    judged: int = 0
    cases: int = 0
    judged_in: int = 0
    why: Mapping[Unjudged, int] = field(default_factory=lambda: _ALL)

    @property
    def complete(self) -> bool:
        return self.judged == self.elements

    @property
    def blind(self) -> bool:
        """Whether the reference has it, and nothing of it was judged in any case: it counts there
        where it is empty, but not where it has elements in others."""
        seen = self.judged if self.elements else self.judged_in
        return not seen and not self.extra and Unjudged.SHARED not in self.why

    @property
    def extra(self) -> bool:
        """Whether only the candidate returns it."""
        return Unjudged.EXTRA in self.why

    def beside(self, other: Judged) -> Judged:
        """With another pass, or the data of another dp coordinate, of the same case."""
        return Judged(
            self.elements + other.elements,
            self.judged + other.judged,
            max(self.cases, other.cases),
            max(self.judged_in, other.judged_in),
            _sum(self.why, other.why),
        )

    def after(self, other: Judged) -> Judged:
        """With the same tensor in another case."""
        both = self.beside(other)
        return Judged(
            both.elements,
            both.judged,
            self.cases + other.cases,
            self.judged_in + other.judged_in,
            both.why,
        )


Tensors = dict[tuple[Kind, str], Judged]  # (kind, name without its pass) →


def over(cases: Iterable[Tensors]) -> Tensors:
    """Each tensor over all the cases."""
    found: Tensors = {}
    for case in cases:
        for key, judged in case.items():
            found[key] = found.get(key, Judged()).after(judged)
    return found


def _sum(one: Mapping[Unjudged, int], other: Mapping[Unjudged, int]) -> Mapping[Unjudged, int]:
    if not (one or other):
        return _ALL
    return {reason: one.get(reason, 0) + other.get(reason, 0) for reason in {**one, **other}}
