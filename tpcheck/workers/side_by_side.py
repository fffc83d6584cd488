"""Checks side by side, each worker on ranks of its own: the same cases and the same verdicts as one
after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpcheck.check import Check
from tpcheck.report import reasons
from tpcheck.search.addresses import address
from tpcheck.search.news import Follower
from tpcheck.search.options import Options
from tpcheck.search.schedule import Job, Schedule
from tpcheck.search.verify import Checking, Telling
from tpcheck.verdict import CheckResult, Verdict
from tpcheck.workers.jobs import Watch, side_by_side
from tpcheck.workers.worker import Start


def verify_side_by_side(
    checks: Sequence[Check],
    start: Start,
    options: Options,
    *,
    engine: str,
    jobs: int,
    finished: Callable[[CheckResult], None] | None = None,
    follower: Follower | None = None,
) -> list[CheckResult]:
    """Runs checks in so many processes; `finished` is told of each as soon as it has ended,
    `follower` of what happens meanwhile.

    Args:
        start: opens a session.
        engine: its name.

    Raises:
        Untrusted, InvalidArgument: as `jobs.side_by_side`.
    """
    follower = follower or Follower()
    run = _Run(checks, options, engine, min(jobs, len(checks)), finished, follower)
    watch = Watch(follower.told, follower.moment, follower.every)
    work = Checking(checks, options)
    side_by_side(run, start, work, count=min(jobs, len(checks)), what="checks", watch=watch)
    return run.telling.results()


class _Run:
    """The jobs of a run of checks."""

    def __init__(
        self,
        checks: Sequence[Check],
        options: Options,
        engine: str,
        at_once: int,
        finished: Callable[[CheckResult], None] | None,
        follower: Follower,
    ) -> None:
        self.checks, self.engine, self.follower = checks, engine, follower
        self.schedule = Schedule(len(checks), options.time_budget, at_once)
        self.telling = Telling(checks, options, finished)

    def next(self) -> Job | None:
        if (job := self.schedule.next()) is not None:
            self.follower.begun(job)
        return job

    def ended(self, job: Job, result: CheckResult) -> None:
        self.follower.ended(job)
        self.telling.add(job.check, self.schedule.ended(job, result))

    def lost(self, job: Job, seconds: float) -> None:
        """The check is UNKNOWN."""
        check, reason = self.checks[job.check], reasons.WORKER_LOST
        result = CheckResult(check.title, Verdict.UNKNOWN, self.engine, reason=reason, trouble=True)
        result.address = address(check)
        self.ended(job, result)
