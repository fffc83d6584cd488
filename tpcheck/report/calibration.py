"""What `tpcheck calibrate` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpcheck.errors import counted
from tpcheck.figures.alarms import Line, Summary, Unit
from tpcheck.figures.thresholds import Threshold


def unit(ran: Unit) -> str:
    """One unit of a campaign in a line; alarms by their ids."""
    used = f"{max(ran.usage):.2f}" if ran.usage else "–"
    alarms = f"  ALARM {' '.join(ran.alarms)}" if ran.alarms else ""
    known = f"  {counted(ran.known, 'known finding')}" if ran.known else ""
    late = f"  {ran.undecided} undecided" if ran.undecided else ""
    cases = counted(ran.cases, "case", width=4)
    head = f"{ran.check:<26} tp={ran.tp} {ran.dtype:<9}"
    return (
        f"{head}{cases:<10}  at most {used} of the bound  {ran.seconds:5.1f} s{known}{late}{alarms}"
    )


def campaign(found: Summary) -> str:
    """Alarms, and quantiles of error / bound, by dtype, degree and check."""
    head = (
        f"{counted(found.whole.cases, 'case')}, {counted(found.whole.alarms, 'alarm')} (95 % sure: "
        f"fewer than "
        f"{found.rate:.2g} per case), {found.undecided} undecided, {found.known} left out as known "
        f"findings; {found.seconds:.0f} s"
    )
    tables = (("dtype", found.by_dtype), ("tp", found.by_degree), ("check", found.by_check))
    return "\n\n".join([head, *(_table(title, lines) for title, lines in tables)])


def _table(title: str, lines: Mapping[Any, Line]) -> str:
    rows = [f"{title:<26}   cases  alarms   error / bound: median    99 %    largest"]
    for key, line in lines.items():
        if line.cases:
            quantiles = f"{line.median:24.3f}{line.p99:8.3f}{line.largest:11.3f}"
            rows.append(f"{key!s:<26}{line.cases:>8}{line.alarms:>8}{quantiles}")
    return "\n".join(rows)


def threshold(row: Threshold) -> str:
    """One cell of the table, with its median."""
    return (
        f"{row.subject:<22} tp={row.tp} {row.dtype:<9}{row.fault:<6} found 99 times in 100: "
        f"{row.p99:.1e}   every other time: {row.median:.1e}"
    )


def sensitivity(rows: Sequence[Threshold]) -> str:
    """One line per subject, dtype and fault; one column per degree."""
    degrees = sorted({row.tp for row in rows})
    cells = {(row.subject, row.dtype, row.fault, row.tp): row.p99 for row in rows}
    head = f"{'found 99 times in 100':<22} {'dtype':<10}{'fault':<6}"
    lines = [head + "".join(f"{f'tp={tp}':>10}" for tp in degrees)]
    for subject, dtype, fault in dict.fromkeys((r.subject, r.dtype, r.fault) for r in rows):
        row = [cells.get((subject, dtype, fault, tp)) for tp in degrees]
        found = "".join(f"{'–' if cell is None else f'{cell:.1e}':>10}" for cell in row)
        lines.append(f"{subject:<22} {dtype:<10}{fault:<6}{found}")
    return "\n".join(lines)
