"""Memory without a name that processes share: it goes with the last that has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile

#: `F_SEAL_FUTURE_WRITE` of Linux, which Python does not name: from then on nobody writes to the
#: file, and who has mapped it goes on. Candidates that write to every descriptor they find then
#: write to no board.
_FUTURE_WRITE = 0x10


def new_memory() -> int:
    """A file in memory that has no name; where the system has none of these, one that has lost
    it."""
    try:
        return os.memfd_create("tpcheck-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def seal(descriptor: int) -> None:
    """Nobody changes the size of the memory under whoever has mapped it."""
    _add(descriptor, "F_SEAL_SHRINK", "F_SEAL_GROW")


def close_to_others(descriptor: int) -> None:
    """From now on only who has mapped the memory writes to it."""
    _add(descriptor, _FUTURE_WRITE)


def _add(descriptor: int, *seals: str | int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        numbers = [getattr(fcntl, one) if isinstance(one, str) else one for one in seals]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, sum(numbers))
