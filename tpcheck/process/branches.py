"""Which branches Python code takes: of each conditional jump that runs, where it leads.

Of `a and b` it is seen whether `a` held, since each is a jump of its own. Noted by a trace
function, of which a thread has one: where there is one already (a debugger, a measurement of
coverage), nothing is noted.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

#: Instructions that are followed, at most. With more, a candidate that works in loops of Python
#: takes several times as long; with fewer, what a model does at its end is not seen.
MOST = 30_000

#: Packages whose branches say nothing of a candidate.
NOT_OF_CANDIDATES = ("torch", "triton", "numpy", "hypothesis", "pytest", "_pytest", "tpcheck")

Trace = Callable[[FrameType, str, Any], Any]


class Branches:
    """Those that are taken while it is a thread's trace function.

    Args:
        most: instructions that it follows.
    """

    def __init__(self, most: int) -> None:
        self._taken: set[tuple[str, int, int]] = set()
        self._left = most

    def words(self) -> set[str]:
        """Each as a word, the same in every run."""
        return {f"branch {zlib.crc32(repr(one).encode()):08x}" for one in self._taken}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Trace | None:
        """A function is called: the trace function of its frame, where it is the candidate's."""
        if not _is_own(frame.f_code.co_filename) or not (jumps := _jumps(frame.f_code)):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._follower(frame.f_code.co_qualname, jumps)

    def _follower(self, name: str, jumps: frozenset[int]) -> Trace:
        last = -1

        def follow(frame: FrameType, event: str, arg: Any) -> Trace | None:
            nonlocal last
            if event != "opcode":
                return follow
            now = frame.f_lasti
            if last in jumps:
                self._taken.add((name, last, now))
            last = now
            self._left -= 1
            if self._left < 0:
                sys.settrace(None)
            return follow

        return follow


@contextmanager
def noted(most: int = MOST) -> Iterator[Branches]:
    """Notes those that this thread takes in the block, in so many instructions."""
    branches = Branches(most)
    if not most or sys.gettrace() is not None:
        yield branches
        return
    sys.settrace(branches)
    try:
        yield branches
    finally:
        if sys.gettrace() is branches:
            sys.settrace(None)


def end() -> None:
    """What is to be noted of this thread is."""
    if isinstance(sys.gettrace(), Branches):
        sys.settrace(None)


@contextmanager
def unnoted() -> Iterator[None]:
    """Nothing is noted in the block, which costs nothing then."""
    own = sys.gettrace()
    if not isinstance(own, Branches):
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(own)


@functools.cache
def _is_own(file: str) -> bool:
    """Whether a file may be a candidate's: none of Python's library, and of no package that
    candidates are made with."""
    if not file.endswith(".py"):
        return False
    for root in _libraries():
        if file.startswith(root):
            return file.removeprefix(root).split(os.sep)[0] not in NOT_OF_CANDIDATES
    return not file.startswith(_not_own())


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Where packages are installed."""
    return tuple({sysconfig.get_path(kind) + os.sep for kind in ("purelib", "platlib")})


@functools.cache
def _not_own() -> tuple[str, ...]:
    own = Path(__file__).parent.parent
    return sysconfig.get_path("stdlib") + os.sep, f"{own}{os.sep}"


@functools.lru_cache(4096)
def _jumps(code: CodeType) -> frozenset[int]:
    """Where in a function it is decided what is next."""
    return frozenset(
        one.offset
        for one in dis.get_instructions(code)
        if one.opname == "FOR_ITER" or ("JUMP" in one.opname and "_IF_" in one.opname)
    )
