"""Folders that candidates can write to, emptied and removed: whatever they have made there, however
deep, and through a descriptor, so that a link in a folder's place leads nowhere."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    """The descriptor of a folder, with its owner's rights, which a candidate may have taken away.

    Args:
        within: of the folder that `path` is relative to.

    Raises:
        OSError: there is none; a link to one is none.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        folder = os.open(path, flags, dir_fd=within)
    except PermissionError:
        os.chmod(path, 0o700, dir_fd=within)
        folder = os.open(path, flags, dir_fd=within)
    try:
        os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def empty(folder: int) -> None:
    """Removes all that is in an open folder, as far as that can be. What is in the folders there is
    moved up first: a path has a limit, and so has a function that calls itself."""
    waiting = _without_files(folder)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            with opened(name, folder) as inner:
                for below in _without_files(inner):
                    above = f".{uuid.uuid4().hex}"
                    with contextlib.suppress(OSError), opened(below, inner):
                        os.rename(below, above, src_dir_fd=inner, dst_dir_fd=folder)
                        waiting.append(above)
            os.rmdir(name, dir_fd=folder)


def _without_files(folder: int) -> list[str]:
    """Removes what is in an open folder; the names of the folders in it, which stay."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


def remove(path: Path) -> None:
    """Removes a folder with all that is in it, or what a candidate has put in its place."""
    try:
        with opened(path) as folder:
            empty(folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(path)
