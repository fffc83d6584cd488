"""`tpcheck.verify`: checks one after the other, each with its share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tpcheck.engines import ranks_for
from tpcheck.errors import InvalidArgument, Untrusted
from tpcheck.report.text import failure
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.search import Search
from tpcheck.search.session import Session, open_session, preload_of
from tpcheck.spec import Check
from tpcheck.verdict import CheckFailed, CheckResult, Verdict

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


def verify(
    *checks: Check,
    engine: Engine | str = "gloo",
    examples: int = 20,
    seed: int = 0,
    degrees: tuple[int, ...] = (2, 4),
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16"),
    time_budget: float | None = None,
    corpus: Corpus | None = None,
) -> list[CheckResult]:
    """Verifies `checks`; returns their results when all PASS.

    Args:
        engine: a warm `Engine`, or the name of one to start for this call.
        examples, seed, degrees, dtypes, time_budget: see `Options`.
        corpus: where counterexamples are kept; by default `.tpcheck/corpus`.

    Raises:
        CheckFailed: a check ended in FAIL or UNKNOWN; the message is the report. UNKNOWN, too,
            where the canary was not found on the engine, in this call or an earlier one.
        InvalidArgument: something given can't be used.
    """
    __tracebackhide__ = True
    if not checks:
        raise InvalidArgument("verify() was given no check")
    for check in checks:
        if (reason := check.spec.cannot_run()) is not None:
            raise InvalidArgument(f"{check.title} {reason}")
    options = Options(
        examples=examples,
        seed=seed,
        degrees=tuple(degrees),
        dtypes=tuple(dtypes),
        time_budget=time_budget,
        corpus=corpus or Corpus(),
    )
    preload = preload_of(checks)
    with open_session(engine, ranks_for(degrees), preload=preload, confirm=True) as session:
        try:
            session.require_trust()
        except Untrusted as error:
            raise CheckFailed(f"{Verdict.UNKNOWN.value}  {error}", []) from None
        results = verify_all(checks, session, options)
    bad = [result for result in results if result.verdict is not Verdict.PASS]
    if bad:
        raise CheckFailed("\n\n".join(map(failure, bad)), bad)
    return results


def verify_all(
    checks: Sequence[Check],
    session: Session,
    options: Options,
    *,
    finished: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Runs checks one after the other; `finished` is told of each."""
    end = None if options.time_budget is None else time.monotonic() + options.time_budget
    results = []
    for index, check in enumerate(checks):
        deadline = None
        if end is not None:
            now = time.monotonic()
            deadline = now + max(0.0, end - now) / (len(checks) - index)
        results.append(Search(check, session.engine, options, session.confirm).run(deadline))
        if finished:
            finished(results[-1])
    return results
