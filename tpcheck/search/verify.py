"""`tpcheck.verify`: checks one after the other, and what is told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tpcheck.case import MOST_RANKS
from tpcheck.check import Check
from tpcheck.engines import ranks_for
from tpcheck.errors import TROUBLE, InvalidArgument, Untrusted, shown
from tpcheck.failed import CheckFailed, CheckTroubled
from tpcheck.process.modes import usual
from tpcheck.report.text import page
from tpcheck.search.addresses import file_of
from tpcheck.search.attempt import attempt, not_run
from tpcheck.search.collect import runnable
from tpcheck.search.corpus import Corpus
from tpcheck.search.excluded import orphans
from tpcheck.search.news import Follower, News, Ran
from tpcheck.search.options import Options
from tpcheck.search.schedule import Job, Schedule
from tpcheck.search.search import Search
from tpcheck.search.session import Session, open_session, preload_of
from tpcheck.search.trials import Onlooker
from tpcheck.space import Space
from tpcheck.verdict import CheckResult, Verdict, exit_code

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
    corpus: str | Path | Corpus | None = None,
) -> list[CheckResult]:
    """Verifies `checks`; returns their results when all PASS.

    Args:
        engine: a warm `Engine`, or the name of one to start for this call.
        examples: cases per check.
        seed: of the search; the same seed draws the same cases.
        degrees: TP degrees that cases may have.
        dtypes: dtypes that cases may have.
        time_budget: seconds for all checks together, or None.
        corpus: the folder where counterexamples are kept; by default `.tpcheck/corpus`.

    Raises:
        CheckFailed: a check ended in FAIL or UNKNOWN; the message is the report, of all checks
            that did. UNKNOWN, too, where the canary was not found on the engine, in this call or
            an earlier one. Where no check FAILs and one can't run (its reference raises, say), it
            is an `InvalidArgument`, too.
        InvalidArgument: something given can't be used.
    """
    __tracebackhide__ = True
    if not checks:
        raise InvalidArgument("verify() was given no check")
    for check in checks:
        if not isinstance(check, Check):
            raise InvalidArgument(f"verify({shown(check)}): give Checks")
    for title, reason in runnable(checks)[1].items():
        raise InvalidArgument(f"{title} {reason}")
    options = Options(
        examples=examples,
        seed=seed,
        degrees=degrees,
        dtypes=dtypes,
        time_budget=time_budget,
        corpus=_kept_in(corpus),
    )
    Space(degrees, dtypes, MOST_RANKS)
    preload = preload_of(checks)
    ranks = ranks_for(degrees, engine if isinstance(engine, str) else "gloo")
    with usual(), open_session(engine, ranks, preload=preload, confirm=True) as session:
        try:
            session.require_trust()
        except Untrusted as error:
            raise CheckFailed(f"{Verdict.UNKNOWN.value}  {error}", []) from None
        results = verify_all(checks, session, options)
    bad = [result for result in results if result.verdict is not Verdict.PASS]
    if bad:
        kind = CheckTroubled if exit_code(bad) == TROUBLE else CheckFailed
        raise kind("\n\n".join(map(page, bad)), bad)
    return results


def _kept_in(folder: str | Path | Corpus | None) -> Corpus:
    if isinstance(folder, Corpus):
        return folder
    if folder is not None and not isinstance(folder, (str, Path)):
        raise InvalidArgument(f"verify(corpus={shown(folder)}): give a folder, or None")
    return Corpus(Path(folder) if folder else None)


def verify_all(
    checks: Sequence[Check],
    session: Session,
    options: Options,
    *,
    finished: Callable[[CheckResult], None] | None = None,
    follower: Follower | None = None,
) -> list[CheckResult]:
    """Runs checks one after the other; `finished` is told of each, `follower` of what happens
    meanwhile. What goes wrong in one is told in its result, and the others run; where the ranks
    can't be started again the rest is UNKNOWN.
    """
    follower = follower or Follower()
    schedule, checking = Schedule(len(checks), options.time_budget), Checking(checks, options)
    telling = Telling(checks, options, finished)
    while (job := schedule.next()) is not None:
        follower.begun(job)
        result = schedule.ended(job, checking(session, job, partial(follower.told, job)))
        follower.ended(job)
        telling.add(job.check, result)
    return telling.results()


class Checking:
    """Does jobs of a run in one session, one after the other."""

    def __init__(self, checks: Sequence[Check], options: Options) -> None:
        self.checks, self.options = checks, options
        self._gone: str | None = None  # why the ranks can't be started again

    def __call__(self, session: Session, job: Job, told: Callable[[News], None]) -> CheckResult:
        """What a job comes to; `told` is given what happens meanwhile."""
        check = self.checks[job.check]
        if self._gone is not None:
            return not_run(check, session, self._gone)
        onlooker = Onlooker(ran=lambda result: told(Ran(result.case.tp)), news=told)
        searching = partial(Search, onlooker=onlooker)
        options = job.options(self.options)
        result = attempt(check, session, options, job.deadline, searching=searching)
        if result.trouble and (gone := session.why_gone()) is not None:
            self._gone = gone
            result.trouble, result.reason = False, gone
        return result


class Telling:
    """The results of a run. Each is told as soon as it is there.

    Args:
        finished: is told of each.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        options: Options,
        finished: Callable[[CheckResult], None] | None,
    ) -> None:
        self.checks, self.corpus, self.finished = checks, options.corpus, finished
        self._titles = Counter(check.title for check in checks)
        files = [file_of(check) for check in checks]
        # of each file its first check has what is to be said of the saved cases of all
        self._firsts = {files.index(file): file for file in files if file is not None}
        self._found: dict[int, CheckResult] = {}
        if self.corpus is not None:
            self.corpus.sweep()
        if self.corpus is not None and self.corpus.sharing:
            for check in checks:
                self.corpus.pull(check.title, check.address())

    def add(self, index: int, result: CheckResult | None) -> None:
        """What a check came to; None where more is to come."""
        if result is None:
            return
        self._found[index] = result
        result.notes += self._notes(index)
        result.namesake = self._titles[self.checks[index].title] > 1
        if self.finished:
            self.finished(result)

    def results(self) -> list[CheckResult]:
        """All that is there, in the order of the checks."""
        return [self._found[index] for index in sorted(self._found)]

    def _notes(self, index: int) -> list[str]:
        """What is to be said of saved cases: bad files, and those of checks that a file no longer
        has, each once."""
        if self.corpus is None:
            return []
        notes = []
        if (file := self._firsts.get(index)) is not None:
            notes = orphans(self.corpus, file)
        return [*self.corpus.complaints(), *notes]
