"""The end of a run of checks: what did not pass, what was cut and why, and the sums."""

from __future__ import annotations

from collections.abc import Sequence

from tpcheck.errors import counted
from tpcheck.report.folded import cut
from tpcheck.report.text import cut_short, title
from tpcheck.report.visible import one_line
from tpcheck.verdict import CheckResult, Verdict


def summary(
    verdict: Verdict, results: Sequence[CheckResult], *, skipped: int, seconds: float
) -> str:
    """A line for each check that did not pass or was cut short, where there are several, and the
    sums."""
    sums = total(verdict, results, skipped=skipped, seconds=seconds)
    rows = [row for result in results for row in _rows(result)] if len(results) > 1 else []
    return "\n".join([*rows, *[""] * bool(rows), sums])


def total(verdict: Verdict, results: Sequence[CheckResult], *, skipped: int, seconds: float) -> str:
    """The last line of a run: `PASS  12 checks, 240 cases, 1 known finding, 31.5 s`; of cases that
    made a failure smaller none is counted."""
    cases = sum(result.examples for result in results)
    known = sum(row.failed > 0 for result in results for row in result.findings)
    also = f", {counted(known, 'known finding')}" if known else ""
    also += f", {counted(skipped, 'check')} skipped" if skipped else ""
    cut = sum(result.asked is not None for result in results)
    also += f", {counted(cut, 'check')} cut short" if cut else ""
    ran = f"{counted(len(results), 'check')}, {counted(cases, 'case')}"
    return f"{verdict.value}  {ran}{also}, {seconds:.1f} s"


def _rows(result: CheckResult) -> list[str]:
    says = []
    if result.verdict is not Verdict.PASS:
        says.append((result.verdict.value, _why(result)))
    if (short := cut_short(result)) is not None:
        says.append(("CUT", short))
    return [f"{word:<8}{title(result):<25} {what}" for word, what in says]


def _why(result: CheckResult) -> str:
    """The diagnosis and the command that shows it again, or why nothing was decided: its page has
    all of it."""
    found = result.counterexample
    if found is None:
        return cut(one_line(result.reason or ""), 34)
    again = f": {found.reproduce}" if found.reproduce else ""
    return f"{found.diagnosis.code}{again}"
