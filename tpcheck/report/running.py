"""What `tpcheck verify` says while it runs: where checks stand, and failures as they are met."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.case import Case
from tpcheck.errors import counted
from tpcheck.report.visible import name, one_line


@dataclass
class Standing:
    """Where a check that runs stands.

    Args:
        title: as it is shown.
        cases, smaller: how many ran up to the first failure, and how many to make it smaller.
        tp: the degree of the last one.
        failed: whether one has.
        explained: whether it is being diagnosed.
    """

    title: str
    cases: int = 0
    smaller: int = 0
    tp: int | None = None
    failed: bool = False
    explained: bool = False


def standing(of: Standing, *, seconds: float, left: float | None) -> str:
    """`row_linear                14 cases, 3.2 per second, tp 2, 42 s left`.

    Args:
        seconds: since it began.
        left: of its share of the time budget, or None.
    """
    ran = of.cases + of.smaller
    if not ran:
        return f"{name(of.title):<25} starts, {seconds:.0f} s"
    rate = f", {ran / seconds:.1f} per second" if seconds else ""
    if of.explained:
        says = f"case {of.cases} failed; being explained"
    elif of.failed:
        says = f"case {of.cases} failed; being made smaller, {counted(of.smaller, 'case')}{rate}"
        says += f", tp {of.tp}"
    else:
        says = f"{counted(of.cases, 'case')}{rate}, tp {of.tp}"
        says += "" if left is None else f", {max(left, 0.0):.0f} s left"
    return f"{name(of.title):<25} {says}"


def met(title: str, case: Case, tensor: str, number: int, *, later: bool) -> str:
    """A failure as it is met. It is no verdict yet: fresh ranks may not see it.

    Args:
        later: whether it is explained once all checks have had their share of the time.
    """
    then = " (explained later)" if later else ""
    what = f"case {number} fails in {name(tensor)}: {one_line(case.describe())}{then}"
    return f"{'FOUND':<8}{name(title):<25} {what}"
