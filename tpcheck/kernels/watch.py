"""What the programs of a launch read and write, under the interpreter: each address is held against
the tensors that the launch was given, and each program's writes against the others' accesses.

Programs run one after another here, so that a race is a deterministic last writer: it does not
show in values, but in the sets of what is written and read.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tpcheck.evidence import Race, Stray, Wrapped
from tpcheck.evidence.kernels import Program
from tpcheck.kernels.view import Addresses, View
from tpcheck.vocabulary import Access


@dataclass
class _Seen:
    """One load, store or atomic of one program."""

    what: Access
    program: Program
    line: int
    addresses: Addresses
    values: NDArray[Any] | None = None  # of a store

    def bits(self, at: int) -> bytes:
        """Of what one lane stores: NaN equals NaN."""
        return b"" if self.values is None else self.values[at].tobytes()


@dataclass
class Launch:
    """One launch, as it runs."""

    kernel: str
    views: list[View]
    accesses: list[_Seen] = field(default_factory=list)


class _Current(threading.local):
    """That of a thread: ranks may be threads of one process."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []


_current = _Current()


@contextmanager
def watching(own: Mapping[str, Tensor]) -> Iterator[Watch]:
    """Notes what kernels do in the block, which is given these tensors."""
    _current.watches.append(Watch(own))
    try:
        yield _current.watches[-1]
    finally:
        _current.watches.pop()


@contextmanager
def launch(kernel: str, arguments: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """One launch, with its arguments by name; what is not a tensor is left out."""
    if not _current.watches:
        yield
        return
    _current.watches[-1].begin(kernel, arguments)
    yield
    _current.watches[-1].end()


def access(
    what: Access,
    program: Program,
    pointers: NDArray[Any],
    mask: Any,
    values: NDArray[Any] | None = None,
) -> None:
    """A load, a store or an atomic, before it is made."""
    if _current.watches:
        _current.watches[-1].access(what, program, pointers, mask, values)


class Watch:
    """What kernels do while it is on.

    Args:
        own: tensors of which a launch may touch nothing but their elements, however large the
            memory around them; of any other all of its storage is allowed.
        races: what was found; an access outside of all is raised.
        masks: of each line that accesses memory, whether none, some or all lanes did.
    """

    def __init__(self, own: Mapping[str, Tensor]) -> None:
        self.own = {_storage(t): View.of(name, t) for name, t in own.items() if t.numel()}
        self.races: list[Race] = []
        self.masks: set[str] = set()
        self.now: Launch | None = None

    # ---- what the interpreter tells

    def begin(self, kernel: str, arguments: Sequence[tuple[str, Any]]) -> None:
        """A launch begins."""
        given = [(name, t) for name, t in arguments if isinstance(t, Tensor) and t.numel()]
        views = [self.own.get(_storage(t)) or View.around(name, t) for name, t in given]
        self.now = Launch(kernel, views)

    def end(self) -> None:
        """A launch has ended."""
        if self.now is not None:
            self.races += _races(self.now)
        self.now = None

    def access(
        self,
        what: Access,
        program: Program,
        pointers: NDArray[Any],
        mask: Any,
        values: NDArray[Any] | None = None,
    ) -> None:
        """An access, before it is made.

        Raises:
            OutOfBounds: it is outside of all arguments; a store would harm the process.
        """
        launch = self.now
        if launch is None:
            return
        active = np.broadcast_to(mask, pointers.shape).astype(bool)
        addresses = pointers.astype(np.int64)[active]
        line = _line_of_the_kernel()
        lanes = "all" if active.all() else "some" if active.any() else "none"
        self.masks.add(f"{launch.kernel}:{line} {lanes}")
        if not addresses.size:
            return
        outside = np.ones(addresses.shape, bool)
        for view in launch.views:
            outside &= ~view.holds(addresses)
        if outside.any():
            raise OutOfBounds(_stray(launch, what, program, line, addresses[outside]))
        if values is not None:
            values = np.broadcast_to(values, pointers.shape)[active]
        launch.accesses.append(_Seen(what, program, line, addresses, values))


class OutOfBounds(Exception):
    """An access outside of every tensor of its launch; it was not made."""

    def __init__(self, stray: Stray) -> None:
        super().__init__(
            f"{stray.access} outside of every argument of {stray.kernel}, by program "
            f"{stray.program} at line {stray.line}: {stray.offset} bytes from the first element of "
            f"{stray.tensor}, {stray.lanes} lanes"
        )
        self.stray = stray


class Overflow(Exception):
    """An operation of integers whose result does not fit into them."""

    def __init__(self, wrapped: Wrapped) -> None:
        super().__init__(
            f"{wrapped.operation} of int{wrapped.bits} overflows in {wrapped.kernel}, program "
            f"{wrapped.program}, line {wrapped.line}"
        )
        self.wrapped = wrapped


def overflow(program: Program, operation: str, bits: int) -> Overflow:
    """That of the launch that runs, to be raised."""
    now = _current.watches[-1].now if _current.watches else None
    kernel = now.kernel if now else "a kernel"
    return Overflow(Wrapped(kernel, _line_of_the_kernel(), program, operation, bits))


def _stray(
    launch: Launch, what: Access, program: Program, line: int, addresses: Addresses
) -> Stray:
    first = int(addresses[0])
    near = min(launch.views, key=lambda view: abs(first - view.first), default=None)
    name, offset = (near.name, first - near.first) if near else ("", 0)
    return Stray(launch.kernel, line, program, what, name, offset, int(addresses.size))


def _races(launch: Launch) -> list[Race]:
    """One per tensor at most."""
    stores = [access for access in launch.accesses if access.what is Access.STORE]
    if not stores or len({access.program for access in launch.accesses}) < 2:
        return []
    written = np.unique(np.concatenate([access.addresses for access in stores]))
    shared = np.array(_shared(launch, written), dtype=np.int64)
    touched: dict[int, list[tuple[_Seen, int]]] = {address: [] for address in shared.tolist()}
    for access in launch.accesses:
        for at in np.flatnonzero(np.isin(access.addresses, shared)).tolist():
            touched[int(access.addresses[at])].append((access, at))
    found: dict[str, Race] = {}
    for address, touches in touched.items():
        view = next(view for view in launch.views if view.holds(np.array([address]))[0])
        pair = None if view.name in found else _conflict(touches)
        if pair is not None:
            by, other = pair
            programs = (by.program, other.program)
            offset = address - view.first
            found[view.name] = Race(launch.kernel, by.line, view.name, offset, programs, other.what)
    return list(found.values())


def _shared(launch: Launch, written: Addresses) -> list[int]:
    """Of the addresses that are written, those that more than one program touches."""
    numbers = {program: n for n, program in enumerate({a.program: None for a in launch.accesses})}
    low = np.full(written.shape, len(numbers))
    high = np.full(written.shape, -1)
    for access in launch.accesses:
        spots = np.searchsorted(written, access.addresses)
        there = spots < len(written)
        there[there] &= written[spots[there]] == access.addresses[there]
        own = numbers[access.program]
        np.minimum.at(low, spots[there], own)
        np.maximum.at(high, spots[there], own)
    return written[low != high].tolist()


def _conflict(touches: Sequence[tuple[_Seen, int]]) -> tuple[_Seen, _Seen] | None:
    """A store and another program's access that it races with. Programs that store the same value
    do no harm."""
    for by, at in touches:
        for other, there in touches:
            if by.what is not Access.STORE or other.program == by.program:
                continue
            if other.what is not Access.STORE or by.bits(at) != other.bits(there):
                return by, other
    return None


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _line_of_the_kernel() -> int:
    """Of the innermost frame that is neither Triton's nor this package's."""
    import triton

    skipped = (os.path.dirname(triton.__file__) + os.sep, os.path.dirname(__file__) + os.sep)
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back  # type: ignore[assignment]
    return 0 if frame is None else frame.f_lineno
