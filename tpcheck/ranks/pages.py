"""Memory that forked processes share, on huge pages: a fork copies one entry for each page, and
what torch's modules make takes 50,000 small ones."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: Of `madvise`, in Linux from 6.1 on: put a range on huge pages now.
COLLAPSE = 25
#: Bytes of a huge page; ranges below two of them may hold none that is aligned.
HUGE = 1 << 21
#: A line of `/proc/self/maps` that is private memory of no file: from, to.
_ANONYMOUS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*(\S*)")


def collapse() -> int:
    """Puts this process's memory on huge pages, where the system has them; returns how many ranges
    it has put there. Without them forks are slower, and nothing else is different."""
    if sys.platform != "linux":
        return 0
    madvise = ctypes.CDLL(None).madvise
    return sum(
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), COLLAPSE) == 0
        for start, end in _ranges()
    )


def _ranges() -> Iterator[tuple[int, int]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = _ANONYMOUS.match(line)
        if found is None or found[3] not in ("", "[heap]"):
            continue
        start, end = int(found[1], 16), int(found[2], 16)
        if end - start >= 2 * HUGE:
            yield start, end
