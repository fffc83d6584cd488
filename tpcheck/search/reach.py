"""What the cases of a check got to, and what is open where none of them fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpcheck.case import Case
from tpcheck.evidence.judged import Judged, Tensors, over
from tpcheck.report import reasons
from tpcheck.vocabulary import Kind, Unjudged


@dataclass(frozen=True)
class Open:
    """Why a check is UNKNOWN.

    Args:
        more: whether more cases may settle it.
        case: the one that could not be decided, if it is one.
    """

    reason: str
    more: bool = False
    case: Case | None = None


@dataclass(frozen=True)
class Reach:
    """Of cases that say something of the candidate; more cases only add to it.

    Args:
        cases: how many there are.
        degrees: theirs, and those at which the spec has no case, `impossible`.
        judged: how much of each tensor was judged in those that did not fail.
    """

    cases: int = 0
    degrees: frozenset[int] = frozenset()
    impossible: frozenset[int] = frozenset()
    judged: Tensors = field(default_factory=dict)

    def after(self, other: Reach) -> Reach:
        """With other cases of the same check."""
        return Reach(
            self.cases + other.cases,
            self.degrees | other.degrees,
            self.impossible | other.impossible,
            over([self.judged, other.judged]),
        )

    def missing(self, degrees: Collection[int]) -> str | None:
        """What keeps cases that all agree from being a PASS.

        Args:
            degrees: at which there are to be some.
        """
        if not self.cases:
            return reasons.nothing_judged(self.judged)
        if never := sorted({*degrees} - self.impossible - self.degrees):
            return reasons.never_ran(never)
        if blind := {key: own for key, own in self.judged.items() if own.blind}:
            return reasons.never_judged(blind)
        if self.judged and all(own.extra or not own.elements for own in self.judged.values()):
            return reasons.all_empty(self.cases)
        return None

    def to_dict(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "degrees": sorted(self.degrees),
            "impossible": sorted(self.impossible),
            "judged": [
                [kind, name, own.elements, own.judged, own.cases, own.judged_in, dict(own.why)]
                for (kind, name), own in self.judged.items()
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reach:
        """The inverse; raises `TypeError`, `KeyError` or `ValueError` where it is none."""
        degrees, impossible = (frozenset(map(int, data[w])) for w in ("degrees", "impossible"))
        judged: Tensors = {}
        for kind, name, *counts, why in data["judged"]:
            elements, judged_elements, cases, judged_in = map(int, counts)
            reasons_of = {Unjudged(reason): int(count) for reason, count in why.items()}
            own = Judged(elements, judged_elements, cases, judged_in, reasons_of)
            judged[Kind(kind), str(name)] = own
        return cls(int(data["cases"]), degrees, impossible, judged)
