"""One check's run, whatever goes wrong in it: a check's trouble is that check's."""

from __future__ import annotations

import time
from collections.abc import Callable

from tpcheck.check import Check
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.process import own_settings
from tpcheck.search.addresses import address, shown
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.search.session import Session
from tpcheck.search.trouble import fault, why
from tpcheck.verdict import CheckResult, Verdict


def attempt(
    check: Check,
    session: Session,
    options: Options,
    deadline: float | None = None,
    *,
    searching: Callable[..., Search] = Search,
) -> CheckResult:
    """The check's result. Where its spec, its reference or its candidate can't run it is UNKNOWN
    with the reason, and `trouble`; where tpcheck itself fails, with its `fault`. A failure that was
    found before that stays a FAIL.

    Args:
        searching: makes the search, as `Search` does.
    """
    found = check.address()
    with own_settings.in_force(found[0] if found else None):
        result = _attempted(check, session, options, deadline, searching)
    result.address = shown(found)
    return result


def _attempted(
    check: Check,
    session: Session,
    options: Options,
    deadline: float | None,
    searching: Callable[..., Search],
) -> CheckResult:
    begun = time.monotonic()
    search: Search | None = None
    try:
        if (absent := check.spec.cannot_run()) is not None:
            raise InvalidArgument(absent)
        search = searching(check, session.engine, options, session.confirm)
        return search.run(deadline)
    except BaseException as error:
        let_through(error)
        result = _cut_short(search, check, session, why(error))
        result.fault = fault(error)
        result.trouble, result.seconds = result.fault is None, time.monotonic() - begun
        return result


def not_run(check: Check, session: Session, reason: str) -> CheckResult:
    """A check that did not come to its turn."""
    result = CheckResult(check.title, Verdict.UNKNOWN, session.engine.name, reason=reason)
    result.address = address(check)
    return result


def _cut_short(search: Search | None, check: Check, session: Session, reason: str) -> CheckResult:
    if search is not None:
        try:
            return search.cut_short(reason)
        except BaseException as error:  # what it had found can't be confirmed, or told
            let_through(error)
    return not_run(check, session, reason)
