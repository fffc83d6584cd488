"""Why nothing was decided: the sentences behind UNKNOWN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpcheck.case import Case
from tpcheck.evidence.judged import Tensors
from tpcheck.known import KnownFinding
from tpcheck.report import judged
from tpcheck.report.text import describe
from tpcheck.verdict import Mismatch

CANARY_SURVIVED = "the canary (a row linear without its all-reduce) was not found"
NO_TIME = "the time was up before a case could run"


def none_counts(left_out: Tensors) -> str:
    """No case counts: none ran, or nothing was judged in those that did."""
    return nothing_judged(left_out) if left_out else NO_TIME


def nothing_judged(tensors: Tensors) -> str:
    """Of a case, or of all of a check."""
    if not tensors:
        return "nothing was compared"
    return f"nothing was judged: {judged.each(tensors)}"


def never_judged(tensors: Tensors) -> str:
    """Tensors of a check of which no case judged anything."""
    return f"judged in no case: {judged.each(tensors)}"


def canary_refused(error: Exception) -> str:
    return f"the canary could not run: {error}"


def twin_refused(mismatch: Mismatch) -> str:
    """The canary's correct twin failed."""
    return f"a correct row linear was called wrong: {describe(mismatch)}"


def trace_is_wrong(operations: Sequence[str]) -> str:
    return f"the trace of one all-reduce shows {list(operations)}"


def late_once(case: Case) -> str:
    """A case met the time limit, and passed when it ran again."""
    return (
        f"{case.describe()} ran into the time limit once, and passed on fresh ranks "
        "(a busy machine, or a race)"
    )


def slow_build(seconds: float) -> str:
    """A candidate's `build` met its limit on some rank."""
    return (
        f"build took longer than {seconds:g} s; name what it imports in its spec's preload=, so "
        "that ranks have it before the clock runs, or give a larger --time-limit"
    )


def not_confirmed(case: Case, *, by: str, real: str) -> str:
    """An engine that simulates ranks fails a case, and real ranks pass it."""
    return f"{by} fails and {real} passes: {case.describe()}"


def never_ran(degrees: Iterable[int]) -> str:
    return f"the time was up before tp={','.join(map(str, degrees))} could run"


def does_not_show(finding: KnownFinding, case: Case) -> str:
    """A known finding is declared for a release that does not have it."""
    return (
        f"the known finding {finding.page} is declared for {finding.package} "
        f"{finding.releases} and does not show with {finding.package} {finding.installed()}: "
        f"{case.describe()} passes; correct its declaration or take it out"
    )


def interrupted(finished: int, checks: int | None) -> str:
    if checks is None:
        return "interrupted before the checks were collected"
    return f"interrupted after {finished} of {checks} checks"
