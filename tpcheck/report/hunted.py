"""What `tpcheck fuzz` prints: findings as they come, a table of where it stands, and the sums."""

from __future__ import annotations

from collections.abc import Iterator

from tpcheck.errors import counted
from tpcheck.figures.hunted import Finding, Hunted, Row
from tpcheck.report.visible import name, one_line, visible

#: What the table's columns are called.
COLUMNS = ("check", "turns", "cases", "features", "worst error / bound", "findings")


def found(finding: Finding) -> str:
    """A finding in a line, when it is met and when it has been made smaller."""
    smaller = "  (made smaller)" if finding.shrunk else ""
    after = f"  after {counted(finding.found_after, 'case')}" if finding.found_after else ""
    return f"FAIL    {_of(finding)}{after}  {finding.id}{smaller}"


def gone(finding: Finding) -> str:
    """A finding of an earlier run that is no longer."""
    return f"PASS    {_of(finding)}  {finding.id} no longer fails"


def _of(finding: Finding) -> str:
    return f"{name(finding.title):<25} {finding.code}: {one_line(finding.place)}"


def said(title: str, line: str) -> str:
    """Something else of a check."""
    return f"{'NOTE':<8}{name(title):<25} {one_line(line)}"


def going_on(hunted: Hunted, *, again: int) -> str:
    """That this is not the first run."""
    what = f"{counted(hunted.cases, 'case')} and {counted(len(hunted.findings), 'finding')}"
    return f"kept of earlier runs: {what}; first again: {counted(again, 'saved case')}"


def standing(hunted: Hunted) -> str:
    """Where a run stands, in a line."""
    rate = hunted.ran / hunted.seconds if hunted.seconds else 0.0
    worst = max((row.worst for row in hunted.rows), default=0.0)
    return (
        f"{_minutes(hunted.seconds)}  {counted(hunted.ran, 'case')}, {rate:.1f} per second, "
        f"{counted(hunted.features, 'feature')}, worst error {worst:.2g} of its bound, "
        f"{counted(len(hunted.findings), 'finding')}"
    )


def rows(hunted: Hunted, most: int) -> Iterator[tuple[str, ...]]:
    """The table, of so many checks at most: those with findings first, then those of which most is
    new."""
    ordered = sorted(hunted.rows, key=lambda row: (-row.findings, -_chance(row), row.title))
    for row in ordered[:most]:
        cells = (row.turns, row.cases, row.features, f"{row.worst:.2g}", row.findings or "")
        yield (visible(name(row.title)), *map(str, cells))
    if len(ordered) > most:
        yield (f"and {len(ordered) - most} more", *[""] * (len(COLUMNS) - 1))


def _chance(row: Row) -> float:
    return row.lone / row.cases if row.cases else 1.0


def sums(hunted: Hunted) -> str:
    """The last lines of a run."""
    lines = [f"UNKNOWN {one_line(hunted.reason)}"] if hunted.reason else []
    for row in hunted.rows:
        why = row.troubled or row.undecided or (None if row.cases else "no case of it has run")
        if why is not None:
            lines.append(f"{'UNKNOWN':<8}{name(row.title):<25} {one_line(why)}")
    all_ = f" ({hunted.cases} with earlier runs)" if hunted.cases != hunted.ran else ""
    found = f"{counted(len(hunted.rows), 'check')}, {counted(len(hunted.findings), 'finding')}"
    ran = f"{counted(hunted.ran, 'case')}{all_}, {counted(hunted.features, 'feature')}"
    lines.append(f"{hunted.verdict.value}  {found}, {ran}, {hunted.seconds:.1f} s")
    if hunted.lost:
        lines.append(f"turns lost: {hunted.lost} (the process ended or hung)")
    if (chance := hunted.chance) is not None:
        lines.append(f"the next case may show something new: chance {chance:.1%}")
    return "\n".join(lines)


def pages(hunted: Hunted) -> str:
    """Each finding as `verify` shows it."""
    return "\n\n".join(visible(finding.page) for finding in hunted.findings)


def troubles(hunted: Hunted) -> dict[str, str]:
    """Check → why it can't run."""
    return {row.title: row.troubled for row in hunted.rows if row.troubled is not None}


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
