"""Which branches Python code takes: of each conditional jump that runs, where it leads.

Of `a and b` it is seen whether `a` held, since each is a jump of its own. Noted by a trace
function, of which a thread has one: where there is one already (a debugger, a measurement of
coverage), nothing is noted.
"""

from __future__ import annotations

import dis
import functools
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

#: Instructions that are followed, and calls that are seen, at most. With more, a candidate that
#: works in loops of Python takes several times as long; with fewer, what a model does at its end is
#: not seen.
INSTRUCTIONS, CALLS = 30_000, 60_000

#: Packages whose branches say nothing of a candidate: what candidates are made with, and what those
#: are.
_MADE_WITH = ("torch", "triton", "numpy", "sympy", "mpmath", "networkx", "tqdm")
NOT_OF_CANDIDATES = {*_MADE_WITH, "hypothesis", "pytest", "_pytest", "tpcheck"}

Trace = Callable[[FrameType, str, Any], Any]


class Branches:
    """Those that are taken while it is a thread's trace function."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, int, int]] = set()
        self._instructions, self._calls = INSTRUCTIONS, CALLS

    def words(self) -> set[str]:
        """Each as a word, the same in every run."""
        return {f"branch {zlib.crc32(repr(one).encode()):08x}" for one in self._taken}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Trace | None:
        """A function is called: the trace function of its frame, where it is the candidate's."""
        self._calls -= 1
        if self._calls < 0:
            sys.settrace(None)
            return None
        module = frame.f_globals.get("__name__")
        if not _is_own(module) or not (jumps := _jumps(frame.f_code)):
            return None
        _follow_instructions(frame, True)
        return self._follower(f"{module}.{frame.f_code.co_qualname}", jumps)

    def _follower(self, name: str, jumps: frozenset[int]) -> Trace:
        last = -1

        def follow(frame: FrameType, event: str, arg: Any) -> Trace | None:
            nonlocal last
            current: object = sys.gettrace()
            if current is not self:  # the candidate's own is, by now
                _follow_instructions(frame, False)
                return None
            if event == "return":  # or the yield of a generator, which others may go on with
                _follow_instructions(frame, False)
            if event != "opcode":
                return follow
            now = frame.f_lasti
            if last in jumps:
                self._taken.add((name, last, now))
            last = now
            self._instructions -= 1
            if self._instructions < 0:
                sys.settrace(None)
            return follow

        return follow


def _follow_instructions(frame: FrameType, on: bool) -> None:
    """Each, in the place of each line."""
    frame.f_trace_lines, frame.f_trace_opcodes = not on, on


@contextmanager
def noted(*, on: bool = True) -> Iterator[Branches]:
    """Notes those that this thread takes in the block; none where that is not `on`."""
    branches = Branches()
    if not on or sys.gettrace() is not None:
        yield branches
        return
    sys.settrace(branches)
    try:
        yield branches
    finally:
        if sys.gettrace() is branches:
            sys.settrace(None)


def end() -> None:
    """No more are noted of this thread."""
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
def _is_own(module: str | None) -> bool:
    """Whether a module may be a candidate's."""
    top = (module or "").partition(".")[0]
    return top not in NOT_OF_CANDIDATES and top not in sys.stdlib_module_names


@functools.lru_cache(4096)
def _jumps(code: CodeType) -> frozenset[int]:
    """Where in a function it is decided what is next: as a trace function is told, where the
    instruction begins with what extends its argument."""
    found: set[int] = set()
    start: int | None = None
    for one in dis.get_instructions(code):
        start = one.offset if start is None else start
        if one.opname == "EXTENDED_ARG":
            continue
        if one.opname == "FOR_ITER" or ("JUMP" in one.opname and "_IF_" in one.opname):
            found.add(start)
        start = None
    return frozenset(found)
