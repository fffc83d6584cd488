"""What a run may leave behind, and how whoever finds it ends it: the zygote when its driver is
gone, the driver when its zygote is, and the next start where both were killed.

All that a zygote forks, and all that a candidate starts from there, has the run's mark in its first
environment, however often it forks and whatever session it is in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from os import getpid
from pathlib import Path

from tpcheck.protocol import folders

#: The variable that says that a process is part of a run; its value is the run's mark.
INSIDE = "TPCHECK_INSIDE_A_RANK"
#: How often the processes are looked through: one may fork while it is being found. Fewer rounds
#: would leave some of what forks without end; more only take time with that.
ROUNDS = 50


def end_marked(mark: str) -> None:
    """Kills every process that is part of the run `mark`, this one excepted."""
    for _ in range(ROUNDS):
        if not any([_ended(pid, mark) for pid in _processes()]):
            return


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _ended(pid: int, mark: str) -> bool:
    """Kills the process where it has the mark; whether it had."""
    if pid == getpid():
        return False
    wanted = f"{INSIDE}={mark}".encode()
    with contextlib.suppress(OSError, AttributeError):
        process = os.pidfd_open(pid)  # first: the number may be another process's by and by
        try:
            if wanted not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return False
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return True
        finally:
            os.close(process)
    return False


def remove_unheld(folder: Path) -> bool:
    """Removes a run's folder and ends what is left of the run, unless its driver lives; whether it
    is gone.

    Raises:
        OSError: it can't be looked at.
    """
    with folders.opened(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        end_marked(folder.name)
        folders.empty(lock)
        folder.rmdir()
    return True
