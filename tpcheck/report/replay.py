"""What `tpcheck replay` prints."""

from __future__ import annotations

from tpcheck.errors import counted
from tpcheck.report.folded import fold
from tpcheck.report.text import failure
from tpcheck.report.visible import one_line
from tpcheck.verdict import CheckResult, Verdict


def text(
    result: CheckResult, identity: str, *, saved: int, identical: bool, verbose: bool = False
) -> str:
    """What became of a saved case, whether its evidence is what it was, and what to know of it.

    Args:
        identity: the case's id.
        saved: how many mismatches it was saved with.
        verbose: with all of the evidence, and all digits.
    """
    lines = [_came_to(result, identity, saved, identical=identical, verbose=verbose)]
    for note in result.notes:
        lines += fold(f"  {'note':<15}{one_line(note)}", by=15)
    return "\n".join(lines)


def _came_to(
    result: CheckResult, identity: str, saved: int, *, identical: bool, verbose: bool
) -> str:
    if result.verdict is Verdict.UNKNOWN:
        return failure(result, verbose=verbose)
    if result.verdict is Verdict.PASS:
        return f"PASS  {result.name} {identity}: the saved case passes now"
    note = "identical to the saved evidence, to the last bit"
    if not identical:
        note = f"not identical to what was saved ({counted(saved, 'mismatch', 'mismatches')} then)"
    return f"{failure(result, verbose=verbose)}\n  compared       {note}"
