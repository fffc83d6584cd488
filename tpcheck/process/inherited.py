"""What of a process those that are forked from it do not have, or have in common with it: a process
that has loaded a module may be forked in place of loading it again only where none of this came up.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path
from typing import Any

import torch

from tpcheck.process.children import children
from tpcheck.process.surroundings import pending


def not_inherited() -> dict[str, Any]:
    """By name, to be held against the same at another time. Known on Linux alone. No wakeup
    descriptor for signals is set afterwards."""
    return {
        "threads": sorted(os.listdir("/proc/self/task")),
        "child processes": sorted(children()),
        "timers": pending(),
        "SIGCHLD": (signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)),
        "CUDA": torch.cuda.is_initialized(),
        # of these there would be one for all: the place in an open file, memory, numbers drawn
        "open files": _open_files(),
        "shared memory": _shared_memory(),
        "random numbers": random.getstate(),
    }


def _open_files() -> dict[str, str]:
    """Descriptor → what it is of."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one of the listing itself
            found[descriptor] = os.readlink(f"/proc/self/fd/{descriptor}")
    return found


def _shared_memory() -> list[str]:
    """Mappings that a fork does not copy: `7f…-7f… rw-s …`."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return [line for line in lines if line.split(maxsplit=2)[1][3] == "s"]
