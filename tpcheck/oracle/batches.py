"""Which noisy runs are made at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tpcheck.bounds.spread import STRAIN

#: The first stream of those that pairs draw from: more single runs are never made.
PAIRS = 1 << 16


@dataclass(frozen=True)
class Batch:
    """Noisy runs that are made at once.

    Args:
        singles, pairs: their streams.
    """

    singles: range
    pairs: range

    @property
    def count(self) -> int:
        return len(self.singles) + 2 * len(self.pairs)

    @property
    def starts(self) -> tuple[int, int]:
        """By which it is known."""
        return self.singles.start, self.pairs.start

    @property
    def streams(self) -> list[tuple[int, float]]:
        """Of each run, and by how much its errors are enlarged."""
        alone = [(k, 1.0) for k in self.singles]
        return alone + [(PAIRS + k, sign * STRAIN) for k in self.pairs for sign in (1.0, -1.0)]


def cut(streams: range, ends: Sequence[int], most: int) -> Iterator[range]:
    """Parts of so many streams, at most; a new one begins at each of the ends."""
    at = streams.start
    while at < streams.stop:
        stop = min([streams.stop, *(end for end in ends if end > at)])
        share = math.ceil((stop - at) / math.ceil((stop - at) / most))  # parts of one size
        yield range(at, min(at + share, stop))
        at = min(at + share, stop)
