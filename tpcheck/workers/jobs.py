"""The loop of a crew, the one of all verbs that run several processes: each idle worker is given a
job, as long as there are any, and what it comes to goes back to who gave it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tpcheck.workers.crew import Crew, lost
from tpcheck.workers.worker import Done, Failed, Opened, Start, Told, Work, Worker

Job = TypeVar("Job")
Value = TypeVar("Value")


class Jobs(Protocol):
    """Gives jobs, and is told what they come to."""

    def next(self) -> Any:
        """The next job; None where there is none, or none yet."""

    def ended(self, job: Any, value: Any) -> None:
        """What a job came to."""

    def lost(self, job: Any, seconds: float) -> None:
        """The process of a job was killed, so many seconds after it last said something: the job
        is not given again."""


@dataclass(frozen=True)
class Watch:
    """What else is looked at while jobs are done.

    Args:
        told: is told of a job and what it says on the way.
        moment: is called at least every `tick` seconds; None: only where something is heard.
        silence: seconds without a word after which a worker is taken to hang.
    """

    told: Callable[[Any, Any], None]
    moment: Callable[[], None]
    tick: float | None
    silence: float = math.inf


def side_by_side(
    jobs: Jobs, start: Start, work: Work, *, count: int, what: str, watch: Watch | None = None
) -> None:
    """Has so many processes do the jobs, until there are none.

    Args:
        start: opens the session of each.
        work: does a job.
        what: the jobs are about.
        watch: looks at what happens meanwhile.

    Raises:
        Untrusted: the canary was not found in one of the sessions.
        InvalidArgument: a session can't be opened, or a process was killed before it was.
    """
    crew = Crew(count, start, work)
    try:
        take(crew, jobs, what, watch)
        crew.close()
    except BaseException:
        crew.kill()  # their ranks end with them
        raise


def take(crew: Crew, jobs: Jobs, what: str, watch: Watch | None = None) -> None:
    """Has a crew do the jobs, until no worker has one. A worker that ends, or is taken to hang, is
    replaced, and its job is lost."""
    heard: dict[Worker, float] = {}  # when each last said something
    while _give(crew, jobs, heard):
        for worker, message in crew.hear(None if watch is None else watch.tick):
            silent = time.monotonic() - heard.get(worker, time.monotonic())
            heard[worker] = time.monotonic()
            match message:
                case None if not worker.opened:
                    raise lost(what)
                case None:
                    _lose(crew, jobs, worker, silent)
                case Failed(error):
                    raise error
                case Opened():
                    worker.opened = True
                case Told(said) if watch is not None:
                    watch.told(worker.job, said)
                case Done(value):
                    job, worker.job = worker.job, None
                    jobs.ended(job, value)
        if watch is not None:
            now = time.monotonic()
            for worker in [worker for worker in crew.workers if worker.job is not None]:
                if (silent := now - heard[worker]) > watch.silence:
                    _lose(crew, jobs, worker, silent)
            watch.moment()


def _give(crew: Crew, jobs: Jobs, heard: dict[Worker, float]) -> bool:
    """Gives every idle worker a job, once its session is open: until then no budget of time runs.
    Whether more is to be heard of."""
    over = False
    for worker in crew.idle():
        if not worker.opened:
            continue
        if (job := jobs.next()) is None:
            over = True
        else:
            heard[worker] = time.monotonic()
            worker.give(job)
    return not over or any(worker.job is not None for worker in crew.workers)


def _lose(crew: Crew, jobs: Jobs, worker: Worker, seconds: float) -> None:
    job, worker.job = worker.job, None
    crew.replace(worker)
    if job is not None:
        jobs.lost(job, seconds)


class InOrder(Generic[Job, Value]):
    """Jobs that end in any order, told in the order in which they were given.

    Args:
        tell: is told of each.
    """

    def __init__(self, tell: Callable[[Job, Value], None]) -> None:
        self.tell = tell
        self.waiting: deque[Job] = deque()  # given, and not told of
        self._came: list[tuple[Job, Value]] = []  # ended, before one that was given earlier

    def given(self, job: Job) -> Job:
        """Notes a job as the last one."""
        self.waiting.append(job)
        return job

    def ended(self, job: Job, value: Value) -> None:
        """Tells of a job, once all that were given before it have ended."""
        self._came.append((job, value))
        while self.waiting:
            first = next((pair for pair in self._came if pair[0] == self.waiting[0]), None)
            if first is None:
                return
            self._came.remove(first)
            self.waiting.popleft()
            self.tell(*first)
