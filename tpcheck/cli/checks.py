"""The checks that a verb without verdicts has to run; what else was named is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpcheck.cli.say import say

if TYPE_CHECKING:
    from tpcheck.check import Check
    from tpcheck.search.collect import Aside


def checks_of(targets: Sequence[str], aside: dict[str, str]) -> list[Check]:
    """Those that can run here. Files that do not import, and why, are put `aside`."""
    from tpcheck.report import reasons, text
    from tpcheck.search.collect import collect, passed_over, runnable, without_checks

    unread: dict[str, Aside] = {}
    checks, absent = runnable(collect(targets, unread))
    aside |= {file: one.reason for file, one in unread.items()}
    for empty in without_checks(targets, unread):
        say(reasons.empty(empty))
    for held in passed_over(targets):
        say(reasons.passed_over(*held))
    for file, reason in aside.items():
        say(text.undecided(file, reason))
    for name, reason in absent.items():
        say(text.skipped(name, reason))
    return checks
