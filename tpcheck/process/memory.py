"""How many bytes a process holds, and how many it may still take: what the machine has left, less
what it is kept from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tpcheck.process.cores import GROUPS, OWN, around, first_line

#: Where Linux says what the machine has.
MACHINE = Path("/proc/meminfo")


def held(process: int) -> int | None:
    """Those in which it has written, or that it has read from files; None where it is gone."""
    with contextlib.suppress(OSError):
        pages = Path(f"/proc/{process}/statm").read_text().split()
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def available(groups: Path = GROUPS, own: Path = OWN, machine: Path = MACHINE) -> int | None:
    """None where nothing says it.

    Args:
        groups, own: the files of control groups, and the list of those of this process.
        machine: what the machine has.
    """
    return min([*_of_machine(machine), *_kept(groups, own)], default=None)


def _of_machine(file: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            name, _, rest = line.partition(":")
            amount = rest.split()[:1]  # in kB
            if name == "MemAvailable" and amount and amount[0].isdigit():
                yield int(amount[0]) * 1024


def _kept(groups: Path, own: Path) -> Iterator[int]:
    """What each control group that the process is in has left."""
    for names, place in around(own):
        if names is None:
            files = [groups / place / file for file in ("memory.max", "memory.current")]
        elif "memory" in names:
            files = [
                groups / "memory" / place / f"memory.{file}_in_bytes" for file in ("limit", "usage")
            ]
        else:
            continue
        most, used = map(first_line, files)
        if most.isdigit() and used.isdigit():  # "max": no limit
            yield max(0, int(most) - int(used))
