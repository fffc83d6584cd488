"""Which accesses of a launch's programs are ordered, whoever runs first: by vector clocks (Mattern,
"Virtual time and global states of distributed systems", 1989).

A program's run falls into spans, each ended by a release. What a program knows of the others is the
number of their spans that are over before it goes on: an atomic that releases leaves what its
program knows at its address, and one that acquires takes what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpcheck.evidence.kernels import Program
from tpcheck.kernels.view import Addresses

#: Of each program, by number, how many spans; of those beyond its end none.
Clock = NDArray[np.int32]
_NOTHING: Clock = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class Stamp:
    """When an access was made.

    Args:
        number: of its program, in the order in which they run.
        span: in which of its program's spans.
        known: the spans of the others that are over.
    """

    number: int
    span: int
    known: Clock


class Clocks:
    """Of one launch, whose programs run one after another."""

    def __init__(self) -> None:
        self.programs = 0
        self.orders = False  # whether anything follows from what another program has left
        self._running: Program | None = None
        self._now = Stamp(-1, 0, _NOTHING)
        self._left: dict[int, Clock] = {}  # at each address, by its releases

    def now(self, program: Program) -> Stamp:
        """The stamp of what this program does next."""
        if program != self._running:
            self._running = program
            self._now = Stamp(self.programs, 0, _NOTHING)
            self.programs += 1
        return self._now

    def atomic(
        self, program: Program, addresses: Addresses, *, acquires: bool, releases: bool
    ) -> Callable[[], None] | None:
        """An atomic of this program, made. One that only reads releases nothing.

        Returns:
            to be called where its result is looked at, if ever: it is not before then that
            anything follows from what other programs have left. None if nothing does.
        """
        before, where = self.now(program), dict.fromkeys(addresses.tolist())  # lanes may share one
        found = {id(one): one for one in map(self._left.get, where) if one is not None}
        if releases:
            own = _joined([before.known, _ending(before)])
            left = {None: own} | {key: _joined([one, own]) for key, one in found.items()}
            for address in where:
                old = self._left.get(address)
                self._left[address] = left[None if old is None else id(old)]
            self._now = Stamp(before.number, before.span + 1, before.known)
        if not acquires or not found:
            return None

        def looked_at() -> None:
            self.orders = True
            if self._now.number == before.number:
                known = _joined([self._now.known, *found.values()])
                self._now = Stamp(before.number, self._now.span, known)

        return looked_at


def _ending(stamp: Stamp) -> Clock:
    own = np.zeros(stamp.number + 1, np.int32)
    own[stamp.number] = stamp.span + 1
    return own


def _joined(clocks: list[Clock]) -> Clock:
    joined = np.zeros(max(map(len, clocks)), np.int32)
    for clock in clocks:
        np.maximum(joined[: len(clock)], clock, out=joined[: len(clock)])
    return joined


def ordered(earlier: list[Stamp], later: list[Stamp]) -> NDArray[np.bool_]:
    """Whether each of the earlier ones is over before each of the later ones, in every run.
    [later, earlier]"""
    numbers = np.array([stamp.number for stamp in earlier])
    spans = np.array([stamp.span for stamp in earlier])
    known = np.zeros((len(later), int(numbers.max(initial=0)) + 1), np.int32)
    for row, stamp in zip(known, later, strict=True):
        row[: len(stamp.known)] = stamp.known[: len(row)]
    own = np.array([stamp.number for stamp in later])[:, None] == numbers[None, :]
    return own | (known[:, numbers] > spans[None, :])
