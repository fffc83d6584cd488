"""A crew: several workers, and what they say."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any

from tpcheck.errors import InvalidArgument
from tpcheck.workers.worker import Message, Refused, Start, Work, Worker, blocked


class Crew:
    """Workers side by side; one that ends is replaced where that is asked for.

    Args:
        count: how many.
        start: opens the session of each.
        work: does a job.
    """

    def __init__(self, count: int, start: Start, work: Work) -> None:
        self.start, self.work = start, work
        self.workers: list[Worker] = []
        atexit.register(self.kill)  # a Ctrl-C may come before any `except`
        try:
            for _ in range(count):
                self._hire()
        except BaseException:
            self.kill()
            raise

    def _hire(self) -> None:
        """One more. A signal comes once it is in the list: one that is in none would be waited for
        at the exit, for ever."""
        with blocked():
            self.workers.append(Worker(self.start, self.work))

    def idle(self) -> list[Worker]:
        """Those without a job. One whose session is not open yet takes one, too."""
        return [worker for worker in self.workers if worker.job is None]

    def hear(self, seconds: float | None = None) -> Iterator[tuple[Worker, Message | None]]:
        """What workers say, as far as it is there within `seconds`; None of one that has ended.

        Raises:
            TpcheckError: a session can't be opened, or is not trusted.
        """
        news: list[Any] = wait([of for worker in self.workers for of in worker.news()], seconds)
        for worker in [worker for worker in self.workers if set(worker.news()) & {*news}]:
            message = worker.heard()
            if isinstance(message, Refused):
                raise message.error
            yield worker, message

    def replace(self, worker: Worker) -> None:
        """Kills a worker, if it still lives, and has another in its place."""
        worker.kill()
        self.workers.remove(worker)
        self._hire()

    def close(self) -> None:
        """Has all of them end, with what they are at."""
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.bury()
        self.workers.clear()
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """Ends all of them at once. Another Ctrl-C meanwhile comes after that: one that is left
        would be waited for at the exit, and does not end by itself."""
        with blocked():
            for worker in self.workers:
                worker.process.kill()
            for worker in self.workers:
                worker.kill()
            self.workers.clear()


def lost(what: str) -> InvalidArgument:
    """A process was ended by others than its worker's own code."""
    why = "ended by native code, or killed for want of memory; --jobs 1 needs the least of that"
    return InvalidArgument(f"a process that ran {what} is gone: {why}")
