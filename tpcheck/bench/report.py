"""`BenchReport`: the figures of one run, and their table."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

START_AIM = 1.5  # seconds
RATIO_AIM = 1.5  # times the bare loop


@dataclass(frozen=True)
class Timing:
    """Milliseconds per example."""

    median: float
    mean: float
    examples: int


@dataclass(frozen=True)
class Start:
    """Seconds until all ranks are ready, and those of one process that only imports torch."""

    cold: float
    again: float
    torch_import: float


@dataclass(frozen=True)
class Degree:
    """One degree: an example under tpcheck and in the bare loop, and where tpcheck's time goes."""

    tpcheck: Timing
    bare: Timing
    spent: dict[str, float]  # what → milliseconds per example, from laps with clocks inside

    @property
    def ratio(self) -> float:
        return self.tpcheck.mean / self.bare.mean


@dataclass(frozen=True)
class Suite:
    """One of torch's test classes at one degree, or the reason why it was not measured."""

    name: str
    degree: int
    start: float = 0.0
    timing: Timing | None = None
    reason: str = ""


@dataclass(frozen=True)
class BenchReport:
    """All figures of one `tpcheck bench`; seconds to start, milliseconds per example."""

    ranks: int
    load: float  # the machine's load average when the run began: above 0 others had a share
    start: Start
    degrees: dict[int, Degree]
    suites: list[Suite] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ratios and aims included."""
        ratios = {degree: one.ratio for degree, one in self.degrees.items()}
        aims = {"start": START_AIM, "ratio": RATIO_AIM}
        return asdict(self) | {"ratios": ratios, "aims": aims, "cores": _cores()}


def render(report: BenchReport) -> Table:
    """The figures as one table, every time against tpcheck's and the bare loop's."""
    where = f"{report.ranks} gloo ranks on {_cores()} cores, load {report.load:.1f} before"
    table = Table(title=f"tpcheck bench: {where}")
    table.add_column("what", no_wrap=True)
    for head in ("tp", "start", "× tpcheck", "median ms", "mean ms", "total", "× bare loop"):
        table.add_column(head, justify="right")
    table.add_column("")
    _starts(table, report.start)
    for degree, one in report.degrees.items():
        table.add_section()
        _degree(table, degree, one)
        for suite in report.suites:
            if suite.degree == degree:
                _suite(table, suite, report.start.cold, one.bare)
    return table


def _starts(table: Table, start: Start) -> None:
    def row(what: str, seconds: float, note: str = "") -> None:
        ratio = f"{seconds / start.cold:.2f}"
        table.add_row(what, "", f"{seconds:.2f} s", ratio, "", "", "", "", note)

    rest = start.cold - start.torch_import - start.again
    row("tpcheck, cold", start.cold, _aim(start.cold, START_AIM, " s"))
    row("  importing torch", start.torch_import)
    if rest > 0:  # a busy machine can slow one import more than the other
        row("  importing DTensor and tpcheck", rest)
    row("  forking the ranks", start.again, "for each check, and after a failure")


def _degree(table: Table, degree: int, one: Degree) -> None:
    def row(what: str, timing: Timing, note: str = "") -> None:
        _examples(table, what, degree, timing, one.bare, note=note)

    row("tpcheck", one.tpcheck, _aim(one.ratio, RATIO_AIM, " ×"))
    for what, mean in one.spent.items():
        ratio = f"{mean / one.bare.mean:.2f}"
        table.add_row(f"  {what}", "", "", "", "", f"{mean:.2f}", "", ratio, "")
    row("bare loop, same ranks", one.bare)


def _suite(table: Table, suite: Suite, cold: float, bare: Timing) -> None:
    if suite.timing is None:
        note = f"not measured: {suite.reason}"
        table.add_row(suite.name, str(suite.degree), "", "", "", "", "", "", note)
        return
    start = (f"{suite.start:.2f} s", f"{suite.start / cold:.2f}")
    _examples(table, suite.name, suite.degree, suite.timing, bare, start=start)


def _examples(
    table: Table,
    what: str,
    degree: int,
    timing: Timing,
    bare: Timing,
    *,
    start: tuple[str, str] = ("", ""),
    note: str = "",
) -> None:
    median, mean = f"{timing.median:.1f}", f"{timing.mean:.1f}"
    total = f"{timing.mean * timing.examples / 1e3:.2f} s / {timing.examples}"
    ratio = f"{timing.mean / bare.mean:.2f}"
    table.add_row(what, str(degree), *start, median, mean, total, ratio, note)


def _aim(value: float, limit: float, unit: str) -> str:
    return f"aim ≤ {limit}{unit}: {'met' if value <= limit else 'missed'}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
