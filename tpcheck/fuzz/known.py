"""What is known of one check, over all runs of a hunt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpcheck.case import Case
from tpcheck.errors import CaseError
from tpcheck.figures.hunted import Finding
from tpcheck.fuzz.features import is_seen
from tpcheck.search.reach import Open, Reach

#: Cases of a check, at most, that could not be decided and that the next run begins with. With
#: more, it runs nothing else for long where many can't be. As many reasons of no case are kept.
MOST_OPEN = 5


@dataclass
class Known:
    """Of one check.

    Args:
        words: feature → how many cases showed it, and the number of the last that did.
        worst: the largest error over its bound among values that agree.
        findings: in the order in which they were found.
        reach: what the cases got to that the last run has drawn.
        open: what no other case settles.
    """

    turns: int = 0
    cases: int = 0
    seconds: float = 0.0
    words: dict[str, tuple[int, int]] = field(default_factory=dict)
    worst: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    reach: Reach = field(default_factory=Reach)
    open: list[Open] = field(default_factory=list)

    @property
    def lone(self) -> int:
        """Cases that alone showed some feature: as often as one of so many did, the next will."""
        return len({case for count, case in self.words.values() if count == 1})

    @property
    def seen(self) -> dict[str, int]:
        """The words of what was seen in runs → how many cases showed each."""
        return {word: count for word, (count, _) in self.words.items() if is_seen(word)}

    def add(self, turns: int, shown: Iterable[Iterable[str]], seconds: float, worst: float) -> int:
        """Cases have run, each of which showed these words; how many of them showed a new one."""
        news = 0
        for words in shown:
            self.cases += 1
            news += any(word not in self.words for word in words)
            for word in words:
                count, _ = self.words.get(word, (0, 0))
                self.words[word] = (count + 1, self.cases)
        self.turns, self.seconds = self.turns + turns, self.seconds + seconds
        self.worst = max(self.worst, worst)
        return news

    def got_to(self, reach: Reach, *, anew: bool) -> None:
        """Cases were drawn, which got to this; `anew`, what earlier ones did no longer counts."""
        self.reach = (Reach() if anew else self.reach).after(reach)

    def put(self, finding: Finding, *, instead_of: Finding | None = None) -> None:
        """A finding is known, in the place of another version of it, if there is one."""
        if instead_of in self.findings:
            self.findings[self.findings.index(instead_of)] = finding
        else:
            self.findings.append(finding)

    def told(self) -> frozenset[str]:
        """The signatures of all findings."""
        return frozenset(word for finding in self.findings for word in finding.signatures)

    def to_dict(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "cases": self.cases,
            "seconds": round(self.seconds, 3),
            "words": self.words,
            "worst": self.worst,
            "findings": [finding.to_dict() for finding in self.findings],
            "reach": self.reach.to_dict(),
            "open": open_to_list(self.open),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Known:
        """The inverse; raises `TypeError`, `KeyError` or `ValueError` where it is none."""
        words = {
            str(word): (int(count), int(case)) for word, (count, case) in data["words"].items()
        }
        found = [Finding.from_dict(finding) for finding in data["findings"]]
        counts = ("turns", "cases", "seconds", "worst")
        turns, cases, seconds, worst = (amount(data[name]) for name in counts)
        reach, left = Reach.from_dict(data["reach"]), open_from_list(data["open"])
        return cls(int(turns), int(cases), seconds, words, worst, found, reach, left)

    def leave_open(self, new: Iterable[Open]) -> None:
        """What could not be decided, in addition."""
        there = {one.case or one.reason for one in self.open}
        for one in new:
            alike = sum((one.case is None) is (other.case is None) for other in self.open)
            if (key := one.case or one.reason) not in there and alike < MOST_OPEN:
                there.add(key)
                self.open.append(one)

    def settle(self, case: Case) -> None:
        """A case has been decided that could not be before."""
        self.open = [one for one in self.open if one.case != case]


def amount(value: Any) -> float:
    """A number of a state; raises `TypeError` or `ValueError` where it is none that can be."""
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{value!r} is not an amount")
    return number


def open_to_list(left: Iterable[Open]) -> list[dict[str, Any]]:
    """For the state's file."""
    return [{"reason": one.reason, "case": one.case and one.case.to_dict()} for one in left]


def open_from_list(data: object) -> list[Open]:
    """The inverse; raises `TypeError`, `KeyError` or `ValueError` where it is none."""
    if not isinstance(data, list):
        raise TypeError("what is open is no list")
    return [_open(one) for one in data]


def _open(data: Mapping[str, Any]) -> Open:
    reason, case = data["reason"], data["case"]
    if not isinstance(reason, str) or not reason:
        raise ValueError("what is open has no reason")
    try:
        return Open(reason, case=None if case is None else Case.from_dict(case))
    except CaseError as error:
        raise ValueError(str(error)) from None
