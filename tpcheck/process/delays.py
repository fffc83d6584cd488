"""The time for which a thread or a process was ready to run and others ran: no limit counts it, so
that a busy machine finds what an idle one does."""

from __future__ import annotations

import contextlib
import os
import time
from os import getpid
from pathlib import Path

#: Nanoseconds, in which the system counts, per second.
_NANO = 1e9
#: Seconds of it that are told at a time: shorter would look again and again at a thread that waits
#: for a moment each time, and its limit would never be reached.
LEAST = 0.01


class Delay:
    """That of threads, from when this is made. Known on Linux alone; elsewhere it is 0.

    Args:
        thread: the number that the system has for one of this process.
        process: that of a process, in place of that: of all its threads.
        running: whether the time for which they ran counts, too.
    """

    def __init__(
        self, thread: int | None = None, *, process: int | None = None, running: bool = False
    ) -> None:
        self._tasks = Path(f"/proc/{getpid() if process is None else process}/task")
        self._thread, self._running = thread, running
        self._waits: dict[str, tuple[list[int], int]] = {}  # thread → what it had, and since when
        self._before = self._counted()
        self._told = 0.0

    def seconds(self) -> float:
        """The longest of any of the threads: they may have waited at the same time, and what one
        that computes for ever has waited stays below the time that has passed."""
        now = self._counted()
        return max((now[thread] - self._before.get(thread, 0) for thread in now), default=0) / _NANO

    def more(self) -> float:
        """What has come to it since this was asked last; 0 while that is less than `LEAST`."""
        came = self.seconds() - self._told
        if came < LEAST:
            return 0.0
        self._told += came
        return came

    def _counted(self) -> dict[str, int]:
        found: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for thread in os.listdir(self._tasks) if self._thread is None else [str(self._thread)]:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    counts = [*map(int, (self._tasks / thread / "schedstat").read_text().split())]
                    ran, waited, _ = counts
                    found[thread] = waited + ran * self._running + self._goes_on(thread, counts)
        return found

    def _goes_on(self, thread: str, counts: list[int]) -> int:
        """Nanoseconds for which it has waited by now, as far as that was seen: the system counts a
        wait when it is over, which on a crowded machine may be half a minute later."""
        _, _, state = (self._tasks / thread / "stat").read_text().rpartition(")")
        if not state.lstrip().startswith("R"):
            self._waits.pop(thread, None)
            return 0
        now = time.monotonic_ns()
        before, since = self._waits.setdefault(thread, (counts, now))
        if before != counts:  # it ran, and may still do so
            self._waits[thread], since = (counts, now), now
        return now - since
