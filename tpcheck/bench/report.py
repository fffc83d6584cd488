"""`BenchReport`: the figures of one run, and their tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from tpcheck.bench import plot
from tpcheck.bench.compare import SCHEMA_VERSION
from tpcheck.bench.gate import Gate
from tpcheck.bench.grid import Cell
from tpcheck.errors import counted

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
    """All figures of one `tpcheck bench`; seconds to start, milliseconds per example. What was not
    measured is None or empty.

    Args:
        about: the commit, the versions, the machine and its load before (`where`).
        ranks: of the small examples.
        table: what a case costs, by size, degree, dtype and engine.
    """

    about: dict[str, Any]
    ranks: int
    start: Start | None = None
    degrees: dict[int, Degree] = field(default_factory=dict)
    suites: list[Suite] = field(default_factory=list)
    table: list[Cell] = field(default_factory=list)
    gate: Gate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ratios and aims included."""
        found = asdict(self) | {"schema_version": SCHEMA_VERSION}
        found["ratios"] = {degree: one.ratio for degree, one in self.degrees.items()}
        found["aims"] = {"start": START_AIM, "ratio": RATIO_AIM}
        for cell, data in zip(self.table, found["table"], strict=True):
            data |= {"median": cell.median, "ratio": cell.ratio}
        if self.gate is not None:
            found["gate"]["rate"] = self.gate.rate
        return found


def render(report: BenchReport) -> Iterable[Table | str]:
    """What was measured, in tables and lines."""
    about = report.about
    yield (
        f"tpcheck {about['tpcheck']} at {about['commit'] or 'no commit'}, torch {about['torch']}, "
        f"{about['cores']} cores of {about['processor']}, load {about['load']:.1f} before"
    )
    if report.start or report.degrees or report.suites:
        yield _small(report)
    if report.table:
        yield plot.cells(report.table)
        yield from plot.ratios(report.table)
        ends = [report.table[0], max(report.table, key=lambda cell: cell.median)]
        for cell in ends if ends[0] is not ends[1] else ends[:1]:
            yield ""
            yield from plot.time_line(cell)
    if (gate := report.gate) is not None:
        yield (
            f"\ngate: {counted(gate.cases, 'case')} of {counted(gate.checks, 'check')} in "
            f"{gate.target}, {gate.seconds:.1f} s ({gate.cpu:.1f} s of processors), "
            f"{gate.rate:.1f} cases per second"
        )


def _small(report: BenchReport) -> Table:
    """The start and the small examples, every time against tpcheck's and the bare loop's."""
    table = Table(title=f"start, and small examples on {report.ranks} gloo ranks")
    table.add_column("what", no_wrap=True)
    for head in ("tp", "start", "× tpcheck", "median ms", "mean ms", "total", "× bare loop"):
        table.add_column(head, justify="right")
    table.add_column("")
    cold = None
    if report.start is not None:
        cold = report.start.cold
        _starts(table, report.start)
    for degree, one in report.degrees.items():
        table.add_section()
        _degree(table, degree, one)
    for suite in report.suites:
        of = report.degrees.get(suite.degree)
        _suite(table, suite, cold, None if of is None else of.bare)
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


def _suite(table: Table, suite: Suite, cold: float | None, bare: Timing | None) -> None:
    if suite.timing is None:
        note = f"not measured: {suite.reason}"
        table.add_row(suite.name, str(suite.degree), "", "", "", "", "", "", note)
        return
    start = (f"{suite.start:.2f} s", "" if cold is None else f"{suite.start / cold:.2f}")
    _examples(table, suite.name, suite.degree, suite.timing, bare, start=start)


def _examples(
    table: Table,
    what: str,
    degree: int,
    timing: Timing,
    bare: Timing | None,
    *,
    start: tuple[str, str] = ("", ""),
    note: str = "",
) -> None:
    median, mean = f"{timing.median:.1f}", f"{timing.mean:.1f}"
    total = f"{timing.mean * timing.examples / 1e3:.2f} s / {timing.examples}"
    ratio = "" if bare is None else f"{timing.mean / bare.mean:.2f}"
    table.add_row(what, str(degree), *start, median, mean, total, ratio, note)


def _aim(value: float, limit: float, unit: str) -> str:
    return f"aim ≤ {limit}{unit}: {'met' if value <= limit else 'missed'}"
