"""Programs of a launch that race: two of them touch one byte, one of them with a plain store, or
one with an atomic and the other without, and nothing orders them.

Programs run one after another here, so that a race does not show in values. Addresses that the same
accesses touch are looked at as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from tpcheck.evidence import Race
from tpcheck.evidence.kernels import Program
from tpcheck.kernels.clocks import Stamp, ordered
from tpcheck.kernels.view import Addresses, View
from tpcheck.vocabulary import Access

Positions = NDArray[np.intp]
_CHUNK = 512  # accesses that are held against all earlier ones at once


@dataclass(frozen=True, eq=False)
class Seen:
    """One load, store or atomic of one program.

    Args:
        addresses, size: of its lanes, and bytes from each.
        values: what a store's lanes leave. [lanes, size]
    """

    what: Access
    program: Program
    line: int
    addresses: Addresses
    size: int
    stamp: Stamp
    values: NDArray[np.uint8] | None = None

    def in_pieces(self, size: int) -> Seen:
        """The same, of so many bytes per lane."""
        count = self.size // size
        if count == 1:
            return self
        steps = np.arange(count, dtype=np.int64) * size
        addresses = (self.addresses[:, None] + steps).reshape(-1)
        values = None if self.values is None else self.values.reshape(-1, size)
        stamp = self.stamp
        return Seen(self.what, self.program, self.line, addresses, size, stamp, values)


def races(kernel: str, views: Sequence[View], accesses: Sequence[Seen]) -> list[Race]:
    """One per tensor at most."""
    near = _that_may_meet(accesses)
    if not near:
        return []
    size = gcd(*(access.size for access in near))
    near = [access.in_pieces(size) for access in near]
    shared = _shared(near)
    if not shared.size:
        return []
    found: dict[str, Race] = {}
    for addresses, own in _alike(near, shared):
        view = next(view for view in views if view.covers(addresses[:1], size=1)[0])
        if view.name not in found and (pair := _conflict(own, addresses)) is not None:
            by, other, address = pair
            offset = address - view.first
            programs = (by.program, other.program)
            about = (by.line, view.name, offset, programs)
            found[view.name] = Race(kernel, *about, other=other.what, access=by.what)
    return list(found.values())


def _that_may_meet(accesses: Sequence[Seen]) -> list[Seen]:
    """Without those whose range no other program's changes overlap; none where all are so."""
    changing = np.array([access.what is not Access.LOAD for access in accesses], bool)
    numbers = np.array([access.stamp.number for access in accesses], np.int64)
    if not changing.any() or (numbers == numbers[0]).all():
        return []
    low = np.array([access.addresses.min() for access in accesses])
    high = np.array([access.addresses.max() + access.size - 1 for access in accesses])
    low, high = low - low.min(), high - low.min()
    if int(high.max() + 1) * int(numbers.max() + 1) >= 2**62:
        return list(accesses)

    def overlapping(low: Addresses, high: Addresses) -> NDArray[np.intp]:
        """How many changes each range meets."""
        begun = np.searchsorted(np.sort(low[changing]), high, side="right")
        return begun - np.searchsorted(np.sort(high[changing]), low, side="left")

    apart = numbers * int(high.max() + 1)  # programs beside one another
    meets = overlapping(low, high) > overlapping(low + apart, high + apart)
    if not meets.any():
        return []
    kept = (meets | changing).tolist()
    return [access for access, keeps in zip(accesses, kept, strict=True) if keeps]


def _shared(accesses: Sequence[Seen]) -> Addresses:
    """The addresses at which a race may be: of more than one program, and not loads alone, nor
    atomics alone."""
    changes = [access.addresses for access in accesses if access.what is not Access.LOAD]
    changed = np.unique(np.concatenate(changes))
    first, last = np.full(changed.shape, -1), np.full(changed.shape, -1)
    seen = {what: np.zeros(changed.shape, bool) for what in Access}
    for access in accesses:  # in the order of their programs
        at, _ = _positions(changed, access)
        first[at] = np.where(first[at] < 0, access.stamp.number, first[at])
        last[at] = access.stamp.number
        seen[access.what][at] = True
    mixed = seen[Access.STORE] | (seen[Access.ATOMIC] & seen[Access.LOAD])
    return changed[(first != last) & mixed]


def _positions(among: Addresses, access: Seen) -> tuple[Positions, Positions]:
    """Where the access's addresses are, and of which of its lanes."""
    at = np.searchsorted(among, access.addresses)
    at[at == len(among)] = 0
    lanes = np.flatnonzero(among[at] == access.addresses)
    return at[lanes], lanes


def _alike(accesses: Sequence[Seen], shared: Addresses) -> Iterator[tuple[Addresses, list[Seen]]]:
    """Addresses that the same accesses touch, and these."""
    draw = np.random.default_rng(0)
    signs = np.zeros(shared.shape, np.uint64)  # equal where the accesses are the same
    touching = []
    for access in accesses:
        at, _ = _positions(shared, access)
        if at.size:
            touching.append((access, at))
            signs[at] = signs[at] ^ draw.integers(2**64, dtype=np.uint64)
    _, firsts, groups = np.unique(signs, return_index=True, return_inverse=True)
    number = np.full(shared.shape, -1)
    number[firsts] = np.arange(len(firsts))
    own: list[list[Seen]] = [[] for _ in firsts]
    for access, at in touching:
        for group in np.unique(number[at]):
            if group >= 0:
                own[group].append(access)
    by_group = np.argsort(groups, kind="stable")
    members = np.split(shared[by_group], np.cumsum(np.bincount(groups))[:-1])
    for group in np.argsort(firsts):
        yield members[group], own[group]


def _conflict(accesses: Sequence[Seen], addresses: Addresses) -> tuple[Seen, Seen, int] | None:
    """An access and another program's that it races with, and where. Programs that store the same
    do no harm."""
    stores, atomics, loads = (
        np.array([access.what is what for access in accesses])
        for what in (Access.STORE, Access.ATOMIC, Access.LOAD)
    )
    left = _left(accesses, addresses)
    stamps = [access.stamp for access in accesses]
    for start in range(0, len(accesses), _CHUNK):
        own = slice(start, start + _CHUNK)
        rows = np.arange(start, min(start + _CHUNK, len(accesses)))
        meet = ~(loads[own, None] & loads) & ~(atomics[own, None] & atomics)
        meet &= ~((left[own, None] == left) & stores[own, None] & stores)
        meet &= rows[:, None] > np.arange(len(accesses))
        meet &= ~ordered(stamps, stamps[own])
        if meet.any():
            later, earlier = np.argwhere(meet)[0]
            return _told(accesses[earlier], accesses[start + later], addresses)
    return None


def _left(accesses: Sequence[Seen], addresses: Addresses) -> NDArray[np.intp]:
    """Of each store a number, the same where it leaves the same at all of these addresses. NaN
    equals NaN; what nobody knows equals nothing."""
    numbers: dict[bytes, int] = {}
    left = np.arange(len(accesses)) + len(accesses)
    for index, access in enumerate(accesses):
        if access.values is not None:
            left[index] = numbers.setdefault(_values(access, addresses).tobytes(), len(numbers))
    return left


def _values(access: Seen, addresses: Addresses) -> NDArray[np.uint8]:
    """What a store leaves at each address."""
    assert access.values is not None
    at, lanes = _positions(addresses, access)
    values = np.zeros((len(addresses), access.size), np.uint8)
    values[at] = access.values[lanes]
    return values


def _told(first: Seen, second: Seen, addresses: Addresses) -> tuple[Seen, Seen, int]:
    """A store is told before an atomic, and that before a load."""
    at = 0
    if first.values is not None and second.values is not None:
        differ = (_values(first, addresses) != _values(second, addresses)).any(-1)
        at = int(np.flatnonzero(differ)[0])
    order = (Access.STORE, Access.ATOMIC, Access.LOAD)
    by, other = sorted((first, second), key=lambda access: order.index(access.what))
    return by, other, int(addresses[at])
