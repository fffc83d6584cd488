"""Whose child a process is, and what becomes of it and of its own children when one ends.

Linux's `prctl`; elsewhere nothing is asked for.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from os import _exit, getppid

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def die_with(parent: int) -> None:
    """The kernel kills this process when `parent`, which forked it, ends, however that ends. Where
    it has ended by now, this process ends here."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if getppid() != parent:
        _exit(1)


def take_orphans(*, still: bool = True) -> None:
    """What the children of this process leave behind when they end becomes its own; no longer where
    `still` is False."""
    _prctl(_SET_CHILD_SUBREAPER, int(still))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)
