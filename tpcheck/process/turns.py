"""In which order the threads of a run's processes have the processors."""

from __future__ import annotations

import contextlib
import os


def wake_in_turn() -> None:
    """From now on a thread of this process, or of its children, that wakes up waits for its turn
    (`SCHED_BATCH`) instead of going before the one that runs.

    gloo holds the lock of a pair while it writes to the pair's socket, which wakes the peer's
    thread. Where that one goes first, and ranks share processors, its own peer comes to the lock,
    cannot take it, and asks `epoll_wait` again at once, since the event stays: 1.2 million calls in
    120 cases of four ranks on two processors, and 28 thousand in turn.
    """
    with contextlib.suppress(AttributeError, OSError):  # of another system, or not allowed
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
