"""What memory held before an access changed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Held:
    """At the lanes of one store or atomic.

    Args:
        memory: Triton's functions that read and write it.
    """

    memory: Any
    pointers: NDArray[np.uint64]
    mask: NDArray[np.bool_]
    bits: NDArray[Any]

    @classmethod
    def now(cls, memory: Any, pointers: NDArray[np.uint64], mask: Any, size: int) -> Held:
        """
        Args:
            size: bytes of a lane.
        """
        kept = np.ascontiguousarray(np.broadcast_to(mask, pointers.shape))
        kind = np.dtype(f"u{size}")
        bits = memory.load(pointers, kept, np.zeros(kept.shape, kind), kind)
        return cls(memory, pointers, kept, bits)

    def again(self) -> Held:
        """What is there now."""
        return Held.now(self.memory, self.pointers, self.mask, self.bits.itemsize)

    def put_back(self) -> None:
        self.memory.store(self.pointers, self.bits, self.mask)
