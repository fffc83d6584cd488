"""What a run holds, and what it has left: memory, descriptors, processes, files."""

from __future__ import annotations

import gc
import os
import resource
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tpcheck.protocol.leftovers import INSIDE

_PLACES = (Path("/dev/shm"), Path(tempfile.gettempdir()))


def of_driver(folders: Iterable[Path]) -> dict[str, int]:
    """What this process holds now, and its runs' folders."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "pid": os.getpid(),
        "memory": pages * resource.getpagesize(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "files": sum(_bytes(folder) for folder in folders),
    }


def _bytes(folder: Path) -> int:
    """What its files take of the disk, and those of the folders in it. What a candidate puts below
    these may be too deep for a path."""
    paths = [*folder.glob("*"), *folder.glob("*/*")]
    return sum(512 * path.lstat().st_blocks for path in paths if path.is_file())


def processes(marks: Iterable[str]) -> dict[int, str]:
    """The processes that are part of the runs `marks`, with what they are."""
    return alive(pid for mark in marks for pid in with_variable(f"{INSIDE}={mark}".encode()))


def with_variable(wanted: bytes) -> list[int]:
    """The processes whose first environment has this variable with this value."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def descendants(of: int) -> dict[int, str]:
    """The processes that stem from one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(entry)[1])
            except OSError:
                continue
    found: dict[int, str] = {}
    new = {of}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new and pid not in found}
        found |= {pid: _named(Path(f"/proc/{pid}")) for pid in new}
    return found


def alive(pids: Iterable[int]) -> dict[int, str]:
    """Those of the processes that live; one that is dead and not yet waited for does not."""
    found = {}
    for pid in pids:
        entry = Path(f"/proc/{pid}")
        try:
            if _stat(entry)[0] not in "ZX":
                found[pid] = _named(entry)
        except OSError:
            continue
    return found


def folders(marks: Iterable[str]) -> list[Path]:
    """The folders of runs that are still there."""
    return [place / mark for mark in marks for place in _PLACES if (place / mark).exists()]


def _stat(entry: Path) -> list[str]:
    """State, parent, … of a process."""
    return (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _named(entry: Path) -> str:
    try:
        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{entry.name}: {_stat(entry)[0]} {words[:80]}"
    except OSError:
        return entry.name
