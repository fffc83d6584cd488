"""A campaign as data: its units, and how often correct candidates were called wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tpcheck.case import DTYPES
from tpcheck.errors import InvalidArgument, shown
from tpcheck.given import is_whole


@dataclass(frozen=True)
class Unit:
    """A few cases of one check at one degree in one dtype, and what they came to.

    Args:
        round: which of the campaign's rounds it is of.
        usage: the largest error / bound, of each case that passed.
        alarms: ids of the cases that failed.
        known: cases that a known finding covers, which were not run.
    """

    check: str
    tp: int
    dtype: str
    round: int
    usage: list[float] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    undecided: int = 0
    known: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.tp, self.round, self.undecided, self.known)
        fits = isinstance(self.usage, list) and isinstance(self.alarms, list)
        fits &= all(map(is_whole, numbers)) and isinstance(self.seconds, (int, float))
        fits &= isinstance(self.check, str) and isinstance(self.dtype, str)
        if not fits or not all(isinstance(used, (int, float)) for used in self.usage):
            raise InvalidArgument(f"a unit of a campaign is not {shown(self)}")

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self.check, self.tp, self.dtype, self.round

    @property
    def decidable(self) -> bool:
        """Whether there are cases of this kind, besides those of known findings."""
        return self.cases + self.undecided > 0

    @property
    def cases(self) -> int:
        """How many cases were decided."""
        return len(self.usage) + len(self.alarms)


@dataclass(frozen=True)
class Line:
    """Cases of one kind: how many, how many alarmed, and the quantiles of the largest
    error / bound in each that passed (NaN where none did)."""

    cases: int
    alarms: int
    median: float
    p99: float
    largest: float

    @staticmethod
    def of(units: Iterable[Unit]) -> Line:
        import numpy

        units = list(units)
        usage = [used for unit in units for used in unit.usage]
        quantiles = numpy.quantile(usage, (0.5, 0.99, 1.0)) if usage else [float("nan")] * 3
        alarms = sum(len(unit.alarms) for unit in units)
        return Line(sum(unit.cases for unit in units), alarms, *(float(q) for q in quantiles))

    def to_dict(self) -> dict[str, Any]:
        return {k: v if v == v else None for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Summary:
    """A campaign in figures."""

    whole: Line
    by_dtype: dict[str, Line]
    by_degree: dict[int, Line]
    by_check: dict[str, Line]
    alarms: list[str]
    undecided: int
    known: int
    seconds: float

    @property
    def rate(self) -> float:
        """The largest chance of an alarm per case that 95 in 100 such campaigns would rule out: of
        a Poisson count, 3 / n where there was none (the rule of three)."""
        n, k = self.whole.cases, self.whole.alarms + 1
        # half the 95 % quantile of χ² with 2k degrees of freedom (Wilson and Hilferty 1931)
        limit = k * (1 - 1 / (9 * k) + 1.645 / (3 * k**0.5)) ** 3
        return min(1.0, limit / n) if n else 1.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "cases": self.whole.cases,
            "alarms": self.alarms,
            "alarm_rate_below": self.rate,
            "undecided": self.undecided,
            "known": self.known,
            "seconds": round(self.seconds, 1),
            "whole": self.whole.to_dict(),
            "by_dtype": _table(self.by_dtype),
            "by_degree": _table(self.by_degree),
            "by_check": _table(self.by_check),
        }


def _table(lines: dict[Any, Line]) -> dict[str, Any]:
    return {str(key): line.to_dict() for key, line in lines.items()}


def summary(units: Sequence[Unit]) -> Summary:
    """The figures of these units."""

    def by(key: Callable[[Unit], Any], order: Iterable[Any]) -> dict[Any, Line]:
        return {value: Line.of(u for u in units if key(u) == value) for value in order}

    present = {unit.dtype for unit in units}
    return Summary(
        whole=Line.of(units),
        by_dtype=by(lambda u: u.dtype, [d for d in DTYPES if d in present]),
        by_degree=by(lambda u: u.tp, sorted({u.tp for u in units})),
        by_check=by(lambda u: u.check, sorted({u.check for u in units})),
        alarms=[identity for unit in units for identity in unit.alarms],
        undecided=sum(unit.undecided for unit in units),
        known=sum(unit.known for unit in units),
        seconds=sum(unit.seconds for unit in units),
    )
