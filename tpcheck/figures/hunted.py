"""What a run of `tpcheck fuzz` comes to, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tpcheck.case import Case
from tpcheck.errors import TROUBLE
from tpcheck.verdict import Verdict


@dataclass(frozen=True)
class Finding:
    """A failure that was found and confirmed, once per diagnosis and place.

    Args:
        check: its address, or its name where it has none.
        title: its name.
        code, place: what it is called, and where it shows.
        id: of the saved case.
        case: that one, as `Case.to_dict` has it.
        signatures: of the failures that are taken for it.
        found_after: how many cases of the check had run.
        shrunk: whether it is as small as it gets.
        page: for people.
        counterexample: for machines, as in a report of `verify`.
    """

    check: str
    title: str
    code: str
    place: str
    id: str
    case: Mapping[str, Any]
    signatures: tuple[str, ...]
    found_after: int
    shrunk: bool
    page: str
    counterexample: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two findings one."""
        return (self.check, self.code, self.place)

    def also(self, *signatures: str) -> Finding:
        """The same, seen in further ways."""
        return replace(self, signatures=tuple(dict.fromkeys([*self.signatures, *signatures])))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Finding:
        """The inverse; raises `TypeError`, or `CaseError` of its case, where it is not one."""
        found = cls(**{**data, "signatures": tuple(data["signatures"])})
        texts = (found.check, found.title, found.code, found.place, found.id, found.page)
        maps = (found.case, found.counterexample)
        if not (
            all(isinstance(text, str) for text in (*texts, *found.signatures))
            and all(isinstance(each, Mapping) for each in maps)
            and type(found.found_after) is int
            and type(found.shrunk) is bool
        ):
            raise TypeError("a finding that is none")
        Case.from_dict(found.case)
        return found


@dataclass(frozen=True)
class Row:
    """What is known of one check.

    Args:
        turns, cases, seconds: spent on it, those of earlier runs included.
        ran: cases of this run.
        features: how many it has shown.
        lone: cases that alone showed some feature.
        worst: the largest error over its bound among values that agree.
        findings: how many there are of it.
        undecided: why it is UNKNOWN, and `troubled`: why the check can't run.
        fault: of tpcheck's own that keeps it from running: its traceback.
        left: what its cases left changed of a process, in a line each.
    """

    check: str
    title: str
    turns: int = 0
    cases: int = 0
    seconds: float = 0.0
    ran: int = 0
    features: int = 0
    lone: int = 0
    worst: float = 0.0
    findings: int = 0
    undecided: str | None = None
    troubled: str | None = None
    fault: str | None = None
    left: tuple[str, ...] = ()


@dataclass
class Hunted:
    """All of it.

    Args:
        lost: turns whose process ended or was silent.
        seconds: of this run.
        reason: why the run is not complete, or not to be trusted.
    """

    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    lost: int = 0
    seconds: float = 0.0
    reason: str | None = None

    @property
    def ran(self) -> int:
        return sum(row.ran for row in self.rows)

    @property
    def cases(self) -> int:
        return sum(row.cases for row in self.rows)

    @property
    def features(self) -> int:
        return sum(row.features for row in self.rows)

    @property
    def chance(self) -> float | None:
        """That the next case shows something new, as Good and Turing estimate it: the share of
        cases that alone showed some feature. None before any has run."""
        return sum(row.lone for row in self.rows) / self.cases if self.cases else None

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return Verdict.FAIL
        open_ones = [row for row in self.rows if row.undecided or row.troubled or not row.cases]
        return Verdict.UNKNOWN if self.reason or open_ones else Verdict.PASS

    @property
    def exit_code(self) -> int:
        """As `verify` ends: 1 where something was found, else `TROUBLE` where a check can't run,
        else 3 where nothing was decided of one."""
        troubled = any(row.troubled and row.fault is None for row in self.rows)
        return TROUBLE if troubled and not self.findings else self.verdict.exit_code

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "cases": self.cases,
            "cases_of_this_run": self.ran,
            "features": self.features,
            "chance_of_something_new": self.chance,
            "turns_lost": self.lost,
            "checks": [asdict(row) for row in self.rows],
            "findings": [finding.to_dict() for finding in self.findings],
        }
