"""Files that are written whole or not at all, and read without trust."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: As `mkstemp` names them.
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}\.tmp")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def replace(path: Path, text: str) -> None:
    """Writes a file in an existing folder: a reader sees the old one or the new one, never half,
    and so does who looks after a power cut.

    Raises:
        OSError: it can't be written; nothing is left behind.
    """
    with uninterrupted():
        handle, temporary = _temporary(path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            try:
                os.fchmod(handle, 0o644)  # shared, unlike other temporary files
                file.write(text)
                file.flush()
                os.fsync(handle)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise


def _temporary(folder: Path) -> tuple[int, str]:
    """A new file that is locked for as long as it is open: `sweep` leaves it alone."""
    while True:
        handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            os.stat(name)
            return handle, name
        os.close(handle)  # swept before it was locked


def sweep(folder: Path) -> None:
    """Removes what a run that was killed while it wrote has left in a folder."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def read(path: Path, most: int) -> str:
    """The text of a regular file of at most `most` bytes. What is not one (a pipe, a folder, a
    device) is not waited for.

    Raises:
        OSError, ValueError: it can't be read, or is not such a file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") if _is_regular(handle) else _refuse(handle) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {most:d} bytes")
    return data.decode("utf-8")


def _is_regular(handle: int) -> bool:
    return stat.S_ISREG(os.fstat(handle).st_mode)


def _refuse(handle: int) -> Any:
    os.close(handle)
    raise ValueError("it is not a regular file")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that end a run come after the block. Python runs their handlers in the main thread:
    in another there is nothing to hold back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not None:  # None: not set by Python
                before[number] = signal.signal(number, lambda which, _: came.append(which))
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for arrived in came:
            signal.raise_signal(arrived)
