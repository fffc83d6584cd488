"""Memory without a name that processes share: it goes with the last that has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile


def new_memory() -> int:
    """A file in memory that has no name; where the system has none of these, one that has lost
    it."""
    try:
        return os.memfd_create("tpcheck-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def seal(descriptor: int, *names: str) -> None:
    """Nobody changes the size of the memory under whoever has mapped it."""
    with contextlib.suppress(OSError, AttributeError):
        seals = sum(getattr(fcntl, name) for name in names)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
