"""Checks side by side, each worker on ranks of its own: the same cases and the same verdicts as one
after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tpcheck.check import Check
from tpcheck.report import reasons
from tpcheck.search.addresses import address
from tpcheck.search.news import Follower
from tpcheck.search.options import Options
from tpcheck.search.schedule import Job, Schedule
from tpcheck.search.verify import Checking, Telling
from tpcheck.verdict import CheckResult, Verdict
from tpcheck.workers.crew import Crew, lost
from tpcheck.workers.worker import Done, Failed, Opened, Start, Told


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
        Untrusted: the canary was not found in one of the sessions.
        InvalidArgument: a session can't be opened, or a process was killed before it was.
    """
    at_once = min(jobs, len(checks))
    schedule = Schedule(len(checks), options.time_budget, at_once)
    telling, follower = Telling(checks, options, finished), follower or Follower()
    crew = Crew(at_once, start, Checking(checks, options))
    try:
        while _gives(crew, schedule, follower):
            for job, result in _heard(crew, checks, engine, follower):
                follower.ended(job)
                telling.add(job.check, schedule.ended(job, result))
        crew.close()
    except BaseException:
        crew.kill()  # their ranks end with them
        raise
    return telling.results()


def _gives(crew: Crew, schedule: Schedule, follower: Follower) -> bool:
    """Gives every idle worker a job; whether any has one."""
    for worker in crew.idle():
        if (job := schedule.next()) is not None:
            worker.give(job)
            follower.begun(job)
    return any(worker.job is not None for worker in crew.workers)


def _heard(
    crew: Crew, checks: Sequence[Check], engine: str, follower: Follower
) -> Iterator[tuple[Job, CheckResult]]:
    """What jobs came to. What was run by a process that was killed is not tried again."""
    follower.moment()
    for worker, message in crew.hear(follower.every):
        match message:
            case None if not worker.opened:
                raise lost("checks")
            case None:
                crew.replace(worker)
                if worker.job is not None:
                    yield worker.job, _lost(checks[worker.job.check], engine)
            case Opened():
                worker.opened = True
            case Failed(error):
                raise error
            case Told(news):
                follower.told(worker.job, news)
            case Done(result):
                job, worker.job = worker.job, None
                yield job, result


def _lost(check: Check, engine: str) -> CheckResult:
    reason = reasons.WORKER_LOST
    result = CheckResult(check.title, Verdict.UNKNOWN, engine, reason=reason, trouble=True)
    result.address = address(check)
    return result
