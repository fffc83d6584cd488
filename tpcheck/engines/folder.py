"""A run's folder: made, locked for as long as the driver lives, removed; and those of runs that
were killed, swept by the next start.

The lock is one of the file system (`flock`) on the folder itself: it ends with the driver, however
that ends, and holds across containers that share `/dev/shm`, where process ids mean nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import time
from pathlib import Path

from tpcheck.errors import EngineUnavailable, NoRoom
from tpcheck.protocol import folders
from tpcheck.protocol.leftovers import remove_unheld

#: Bytes that must be free in `/dev/shm` for a run's folder to be there. A case's tensors are some
#: kilobytes, those of a large one megabytes; with less room the folder for temporary files is used.
ROOM = 32 * 2**20
#: Bytes without which a folder counts as full: a failure seen then may be the disk's.
LEAST = 256 * 2**10
#: Seconds after which a folder that its maker has not locked is left over: making one takes
#: milliseconds, and a maker that was stopped in between makes another.
UNLOCKED = 3600.0

SHARED = Path("/dev/shm")
_MADE, _BEING_MADE = "tpcheck-run-", "tpcheck-new-"
_OURS = re.compile(f"({_MADE}|{_BEING_MADE})[a-z0-9_]{{8}}")


class RunFolder:
    """Where one engine's files are. Makes it; `remove()` ends it.

    Raises:
        EngineUnavailable: no folder can be made.
    """

    def __init__(self) -> None:
        sweep()
        self.path, self._lock = _made(_places())

    @property
    def mark(self) -> str:
        """A word that no other run has: the mark of its processes."""
        return self.path.name

    def renew(self) -> bool:
        """Makes the folder anew, under its name, where a candidate has removed it; whether it had
        to."""
        if _same(self._lock, self.path):
            os.fchmod(self._lock, 0o700)
            return False
        self.remove()
        self.path, self._lock = _made([self.path.parent], self.path.name)
        return True

    def clear(self) -> None:
        """Removes what candidates have left in it: to be called while no case runs."""
        with contextlib.suppress(OSError):
            os.fchmod(self._lock, 0o700)
            folders.empty(self._lock)

    def require_room(self) -> None:
        """Raises `NoRoom` where the folder's disk is full: what a rank could not write there is not
        the candidate's fault."""
        if self.is_full:
            raise full(self.path)

    @property
    def is_full(self) -> bool:
        """Whether the folder's disk has no room for a case."""
        return not _has_room(self.path.parent, LEAST)

    def remove(self) -> None:
        """Removes it, wherever a candidate has moved it, and what it has put in its place."""
        self.clear()
        with contextlib.suppress(OSError):
            os.rmdir(os.readlink(f"/proc/self/fd/{self._lock}"))
        os.close(self._lock)
        folders.remove(self.path)


def full(path: Path) -> NoRoom:
    """No room for a run's files."""
    return NoRoom(
        f"no room is left for a run's files in {path.parent}; make some there, or set TMPDIR to a "
        "folder that has it"
    )


def _made(places: list[Path], name: str = "") -> tuple[Path, int]:
    """A new folder, in the first place that takes it, and its lock. It has another name until it is
    locked, so that nobody sweeps it in between."""
    refused: OSError | None = None
    for place in places:
        try:
            new = Path(tempfile.mkdtemp(prefix=_BEING_MADE, dir=place))
            lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return new.rename(place / (name or new.name.replace(_BEING_MADE, _MADE))), lock
        except OSError as error:
            refused = error
    assert refused is not None
    why = refused.strerror or refused
    raise EngineUnavailable(
        f"no folder for a run's files can be made in {places[-1]}: {why}; set TMPDIR to one"
    ) from None


def _places() -> list[Path]:
    """Where a run's folder may be, the best place first."""
    temporary = _temporary()
    return [SHARED, temporary] if _has_room(SHARED, ROOM) else [temporary]


def _has_room(place: Path, wanted: int) -> bool:
    try:
        disk = os.statvfs(place)
    except OSError:
        return False
    return os.access(place, os.W_OK) and disk.f_bavail * disk.f_frsize >= wanted


def sweep() -> None:
    """Removes what dead runs of this user have left: folders that no driver holds any more, and
    processes that candidates of those runs started."""
    for place in {SHARED, _temporary()}:
        for folder in _listed(place):
            _sweep(folder)


def _listed(place: Path) -> list[Path]:
    try:
        return [path for path in place.iterdir() if _OURS.fullmatch(path.name)]
    except OSError:
        return []


def _sweep(folder: Path) -> None:
    with contextlib.suppress(OSError):
        about = folder.lstat()
        fresh = folder.name.startswith(_BEING_MADE) and time.time() - about.st_mtime < UNLOCKED
        if fresh or about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            return
        remove_unheld(folder)


def _same(descriptor: int, path: Path) -> bool:
    """Whether `path` is still the folder that was opened."""
    try:
        there, held = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _temporary() -> Path:
    return Path(tempfile.gettempdir())
