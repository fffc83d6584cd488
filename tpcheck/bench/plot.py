"""The table and the time line as text: they are read in logs, where nothing else is shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich.table import Table

from tpcheck.bench.compare import Difference, spread
from tpcheck.bench.grid import Cell

#: Characters of the longest bar. More, and a time line does not fit beside its names in 80 columns.
WIDE = 40


def bar(value: float, largest: float) -> str:
    """As long as the value is beside the largest one; something of all that is there."""
    return "#" * max(round(WIDE * value / largest), 1) if value > 0 and largest > 0 else ""


def cells(table: Sequence[Cell]) -> Table:
    """Milliseconds per case and × of the bare loop: a row per engine, dtype and degree, a column
    per size."""
    sizes = sorted({cell.hidden for cell in table})
    found = {(c.engine, c.dtype, c.tp, c.hidden): c for c in table}
    shown = Table(title="ms per case (median of the laps), × of the bare loop on the same ranks")
    for head in ("engine", "dtype", "tp"):
        shown.add_column(head)
    for hidden in sizes:
        shown.add_column(f"hidden {hidden}", justify="right")
    for engine, dtype, tp in dict.fromkeys((c.engine, c.dtype, c.tp) for c in table):
        row = [found.get((engine, dtype, tp, hidden)) for hidden in sizes]
        texts = ["" if c is None else f"{c.median:.1f}  {c.ratio:5.2f} ×" for c in row]
        shown.add_row(engine, dtype, str(tp), *texts)
    return shown


def ratios(table: Sequence[Cell]) -> Iterable[str]:
    """× of the bare loop, as bars."""
    largest = max((cell.ratio for cell in table), default=0.0)
    for cell in table:
        name = f"{cell.engine} tp {cell.tp} {cell.dtype} {cell.hidden}"
        yield f"{name:>28}  {cell.ratio:5.2f} ×  {bar(cell.ratio, largest)}"


def time_line(cell: Cell) -> Iterable[str]:
    """The parts of one case, in their order, those that take no time left out."""
    whole = sum(cell.spent.values())
    yield (
        f"one case: {cell.engine}, tp {cell.tp}, hidden {cell.hidden}, {cell.dtype}: "
        f"{whole:.1f} ms (with clocks inside; nothing at the same time)"
    )
    largest = max(cell.spent.values(), default=0.0)
    for part, spent in cell.spent.items():
        if spent > 0:
            yield f"{part:>32}  {spent:9.2f} ms  {spent / whole:4.0%}  {bar(spent, largest)}"


def differences(found: Sequence[Difference]) -> Table:
    """Two runs side by side; the spread is half of the range of the repetitions."""
    shown = Table(title="now against before: medians, ± half of the range of the laps")
    for head in ("what", "before ms", "±", "now ms", "±", "now / before", ""):
        shown.add_column(head, justify="left" if head in ("what", "") else "right")
    for one in found:
        sides = [
            text
            for values in (one.before, one.now)
            for text in (f"{statistics.median(values):.1f}", f"{spread(values):.0%}")
        ]
        shown.add_row(one.what, *sides, f"{one.ratio:.2f}", one.judged)
    return shown
