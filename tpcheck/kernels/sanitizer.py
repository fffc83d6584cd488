"""What NVIDIA's compute-sanitizer sees of compiled kernels: `TPCHECK_SANITIZER=memcheck`
(`protocol/sanitized.py`). One case runs at a time there, so that what its log says since a case
began is said of that case, by each of its ranks, and by the driver of a rank that it has ended.

Its lines: "Compute Sanitizer" of CUDA's documentation, "Memcheck Tool", and as 2025.3 wrote them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tpcheck.evidence import Scene, Stray
from tpcheck.protocol.sanitized import LOG
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Access, Kind

#: Seconds in which the log has what ended a kernel: it is written by another process.
SOON = 3.0

_ACCESS = re.compile(r"Invalid __\w+__ (read|write|atomic) of size [\d,]+ bytes")
_KERNEL = re.compile(r"\bat ([^\s+(:]+)")
_LINE = re.compile(r"\bat .*\bin .*:(\d+)$", re.MULTILINE)
_PROGRAM = re.compile(r"in block \((\d+),(\d+),(\d+)\)")
_NEAR = re.compile(
    r"([\d,]+) bytes (after|before|inside) the nearest allocation at \S+ of size ([\d,]+) bytes"
)
_KINDS = {"read": Access.LOAD, "write": Access.STORE, "atomic": Access.ATOMIC}
_began = 0  # how long the log was when the case began


def is_on() -> bool:
    """Whether the tool watches this process."""
    return LOG in os.environ


def begin() -> None:
    """A case is next."""
    global _began
    _began = len(_log()) if is_on() else 0


def stray(*, wait: float = 0.0) -> Stray | None:
    """The first access outside of all allocations in this case.

    Args:
        wait: seconds to wait for one.
    """
    deadline = time.monotonic() + wait
    while is_on():
        if (found := next(strays(_log()[_began:]), None)) is not None:
            return found
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return None


def told(stray: Stray, rank: int, at: Scene) -> Mismatch:
    """An access as evidence of a rank."""
    return Mismatch(stray.kernel, Kind.MEMORY, rank, detail=replace(stray, scene=at))


def _log() -> str:
    try:
        return Path(os.environ[LOG]).read_text(errors="replace")
    except OSError:  # nothing was written yet
        return ""


def strays(text: str) -> Iterator[Stray]:
    """Those that a log tells of: one for each kernel, line and kind of access, in order."""
    parts = _ACCESS.split(text)
    threads: dict[Stray, int] = {}
    for access, told in zip(parts[1::2], parts[2::2], strict=True):
        one = _stray(_KINDS[access], told)
        threads[one] = threads.get(one, 0) + 1
    for one, count in threads.items():
        yield Stray(**{**vars(one), "lanes": count})


def _stray(access: Access, told: str) -> Stray:
    kernel, line, block = _KERNEL.search(told), _LINE.search(told), _PROGRAM.search(told)
    near, tensor, offset = _NEAR.search(told), "", 0
    if near is not None:
        beside, where, size = near.groups()
        apart, own = int(beside.replace(",", "")), int(size.replace(",", ""))
        tensor = f"an allocation of {own} bytes"
        offset = {"after": own - 1 + apart, "before": -apart, "inside": apart}[where]
    return Stray(
        kernel.group(1) if kernel else "a kernel",
        int(line.group(1)) if line else 0,
        (int(block[1]), int(block[2]), int(block[3])) if block else (0, 0, 0),
        access,
        tensor,
        offset,
        1,
    )
