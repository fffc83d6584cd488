"""What the programs of a launch read and write, under the interpreter: each address is held against
the tensors that the launch was given, and each program's accesses against the others'.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tpcheck.evidence import Race, Stray, Unkept, Wrapped
from tpcheck.evidence.kernels import Program
from tpcheck.kernels import given
from tpcheck.kernels.clocks import Clocks
from tpcheck.kernels.held import Held
from tpcheck.kernels.races import Seen, races
from tpcheck.kernels.stopped import NotModelled, Stopped
from tpcheck.kernels.view import Addresses, View
from tpcheck.vocabulary import Access

#: So many programs, or more, are many.
MANY = 3


@dataclass
class Launch:
    """One launch, as it runs."""

    kernel: str
    views: list[View]
    unknown: list[int] = field(default_factory=list)  # integers that may be addresses
    accesses: list[Seen] = field(default_factory=list)
    clocks: Clocks = field(default_factory=Clocks)
    changes: list[Held] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    programs: int = 0

    def finds(self, address: int) -> bool:
        """Whether an access outside of all views may be to a tensor that was given by its address:
        such tensors are views from now on.

        Raises:
            NotModelled: there is none, and the access is near an address that was given.
        """
        near = [one for one in self.unknown if abs(address - one) < given.NEAR]
        if not near:
            return False
        self.unknown = [one for one in self.unknown if one not in near]
        found = given.living(near)
        if not found:
            raise NotModelled("an access by an address that is given as an integer")
        self.views += [View.around("a tensor given by its address", one) for one in found]
        return True


class _Current(threading.local):
    """That of a thread: ranks may be threads of one process."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []


_current = _Current()


def _nothing() -> None:
    """Nobody waits for programs."""


@contextmanager
def watching(own: Mapping[str, Tensor], turn: Callable[[], None] = _nothing) -> Iterator[Watch]:
    """Notes what kernels do in the block, which is given these tensors.

    Args:
        turn: called as each program begins.
    """
    _current.watches.append(Watch(own, turn))
    try:
        yield _current.watches[-1]
    finally:
        _current.watches.pop()


@contextmanager
def launch(
    kernel: str, arguments: Sequence[tuple[str, Any]], constants: Sequence[str] = ()
) -> Iterator[Launch | None]:
    """One launch, with its arguments by name, and the names of those that are constants of the
    compiler. None where nothing is watched."""
    if not _current.watches:
        yield None
        return
    watch = _current.watches[-1]
    watch.begin(kernel, arguments, constants)
    try:
        yield watch.now
        watch.end()
    finally:
        watch.now = None


def access(
    what: Access,
    program: Program,
    pointers: NDArray[Any],
    size: int,
    mask: Any,
    values: NDArray[Any] | None = None,
) -> None:
    """A load, a store or an atomic of `size` bytes per lane, before it is made."""
    if _current.watches:
        _current.watches[-1].access(what, program, pointers, size, mask, values)


def turn() -> None:
    """A program begins."""
    if _current.watches:
        _current.watches[-1].next()


def changes() -> list[Held] | None:
    """What the launch that runs has changed; None where nothing is watched."""
    now = _current.watches[-1].now if _current.watches else None
    return None if now is None else now.changes


def last() -> Launch | None:
    """The launch that has ended last; None where nothing is watched."""
    return _current.watches[-1].last if _current.watches else None


def atomic(
    program: Program, pointers: NDArray[Any], mask: Any, *, acquires: bool, releases: bool
) -> Callable[[], None] | None:
    """What an atomic orders, after it was made: `Clocks.atomic`."""
    now = _current.watches[-1].now if _current.watches else None
    if now is None:
        return None
    addresses = pointers.astype(np.int64)[np.broadcast_to(mask, pointers.shape).astype(bool)]
    return now.clocks.atomic(program, addresses, acquires=acquires, releases=releases)


class Watch:
    """What kernels do while it is on.

    Args:
        own: tensors of which a launch may touch nothing but their elements, however large the
            memory around them; of any other all of its storage is allowed.
        races: what was found; an access outside of all is raised.
        ways: as words, of each line that accesses memory whether none, some or all lanes did; of
            each launch its flags, and whether it has one program, two or many.
        undefined: lines of kernels, as `kernel:line`, that load lanes which are undefined.
        turn: called as each program begins.
    """

    def __init__(self, own: Mapping[str, Tensor], turn: Callable[[], None] = _nothing) -> None:
        self.turn = turn
        self.own = {_storage(t): View.of(name, t) for name, t in own.items() if t.numel()}
        self.races: list[Race] = []
        self.ways: set[str] = set()
        self.undefined: set[str] = set()
        self.now: Launch | None = None
        self.last: Launch | None = None  # that has ended

    # ---- what the interpreter tells

    def begin(
        self, kernel: str, arguments: Sequence[tuple[str, Any]], constants: Sequence[str] = ()
    ) -> None:
        """A launch begins."""
        for name, value in arguments:
            if name in constants and type(value) is not int:  # of sizes, those of cases tell
                self.ways.add(f"launch {kernel} {name}={value}")
        found = ((name, t) for name, t in given.tensors(arguments) if t.numel())
        views = [self.own.get(_storage(t)) or View.around(name, t) for name, t in found]
        known = given.addresses(arguments)
        views += [v for v in self.own.values() if v.reached_by(known) and v not in views]
        unknown = [one for one in known if not any(view.reached_by([one]) for view in views)]
        self.now = Launch(kernel, views, unknown)

    def next(self) -> None:
        """A program begins."""
        if self.now is not None:
            self.now.programs += 1
        self.turn()

    def end(self) -> None:
        """A launch has ended."""
        assert self.now is not None
        self.last = self.now
        self.now.races = races(self.now.kernel, self.now.views, self.now.accesses)
        self.races += self.now.races
        self.ways.add(f"launch {self.now.kernel} programs={min(self.now.programs, MANY)}")

    def access(
        self,
        what: Access,
        program: Program,
        pointers: NDArray[Any],
        size: int,
        mask: Any,
        values: NDArray[Any] | None = None,
    ) -> None:
        """An access, before it is made.

        Raises:
            Stopped: it is outside of all arguments; a store would harm the process.
            NotModelled: it may be to a tensor that is not known.
        """
        launch = self.now
        if launch is None:
            return
        active = _broadcast(np.asarray(mask, bool), pointers.shape)
        whole = bool(active.all())
        addresses = pointers.astype(np.int64)
        addresses = addresses.reshape(-1) if whole else addresses[active]
        line = _line_of_the_kernel()
        lanes = "all" if whole else "some" if addresses.size else "none"
        self.ways.add(f"mask {launch.kernel}:{line} {lanes}")
        if not addresses.size:
            return
        low, high = int(addresses.min()), int(addresses.max())
        near = [view for view in launch.views if view.first <= high and low < view.end]
        if not any(view.covers_all(addresses, low, high, size) for view in near):
            outside = np.ones(addresses.shape, bool)
            for view in near:
                outside &= ~view.covers(addresses, size=size)
            if outside.any():
                if launch.finds(int(addresses[outside][0])):
                    return self.access(what, program, pointers, size, mask, values)
                raise Stopped(_stray(launch, what, program, line, addresses[outside]))
        if values is not None:
            values = _broadcast(values, pointers.shape)[active].reshape(-1, 1).view(np.uint8)
        stamp = launch.clocks.now(program)
        launch.accesses.append(Seen(what, program, line, addresses, size, stamp, values))


def undefined() -> None:
    """The load that was noted last has lanes that its mask leaves out, and gives nothing for."""
    if _current.watches:
        _current.watches[-1].undefined.add(f"{_kernel()}:{_line_of_the_kernel()}")


def overflow(program: Program, operation: str, bits: int) -> Stopped:
    """Integers that do not fit, in the launch that runs; to be raised."""
    return Stopped(Wrapped(_kernel(), _line_of_the_kernel(), program, operation, bits))


def unkept(program: Program, promise: str, values: tuple[int, ...]) -> Stopped:
    """A promise that does not hold, in the launch that runs; to be raised."""
    return Stopped(Unkept(_kernel(), _line_of_the_kernel(), program, promise, values))


def _kernel() -> str:
    now = _current.watches[-1].now if _current.watches else None
    return now.kernel if now else "a kernel"


def _stray(
    launch: Launch, what: Access, program: Program, line: int, addresses: Addresses
) -> Stray:
    first = int(addresses[0])
    near = min(launch.views, key=lambda view: abs(first - view.first), default=None)
    name, offset = (near.name, first - near.first) if near else ("", 0)
    return Stray(launch.kernel, line, program, what, name, offset, int(addresses.size))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _broadcast(given: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return given if given.shape == shape else np.broadcast_to(given, shape)


@functools.cache
def _not_of_kernels() -> tuple[str, str]:
    """Where the code of Triton is, and of this package."""
    import triton

    return os.path.dirname(triton.__file__) + os.sep, os.path.dirname(__file__) + os.sep


def _line_of_the_kernel() -> int:
    """Of the innermost frame that is neither Triton's nor this package's."""
    skipped = _not_of_kernels()
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back  # type: ignore[assignment]
    return 0 if frame is None else frame.f_lineno
