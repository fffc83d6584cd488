"""What the benchmark of an autotuned kernel leaves in outputs. The launch that follows has to write
it again: where it does not, a later one, which no benchmark comes before, leaves what was there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

import numpy as np

from tpcheck.kernels import watch
from tpcheck.kernels.view import Addresses
from tpcheck.vocabulary import Access

_POISON = 0xFF  # in every byte: NaN in floats of all sizes


@contextmanager
def spoiled(tuner: Any) -> Iterator[None]:
    """What a benchmark of this kernel's, in the block, leaves is spoiled before its hook puts back
    what is to be as it was."""
    known, before = tuner.post_hook, watch.last()

    def hook(*arguments: Any, **named: Any) -> Any:
        launch = watch.last()
        if launch is not None and launch is not before:  # a launch may be refused
            spoil(launch)
        return known(*arguments, **named)

    tuner.post_hook = hook
    try:
        yield
    finally:
        tuner.post_hook = known


def spoil(launch: watch.Launch) -> None:
    """Poison in the place of what a launch has stored and read nothing of. What it also reads, or
    changes by atomics, is left: a benchmark that adds to it makes the kernel wrong."""
    size = gcd(*(access.size for access in launch.accesses))
    stored, read = (_places(launch, size, stores=stores) for stores in (True, False))
    if not stored.size:
        return
    near = read[(read >= stored.min()) & (read <= stored.max())]
    written = np.unique(stored[~np.isin(stored, near)])
    for run in np.split(written, np.flatnonzero(np.diff(written) != size) + 1):
        if len(run):
            ctypes.memset(int(run[0]), _POISON, size * len(run))


def _places(launch: watch.Launch, size: int, *, stores: bool) -> Addresses:
    """The addresses of what it stores, or touches otherwise, in pieces of so many bytes."""
    own = [access for access in launch.accesses if (access.what is Access.STORE) == stores]
    return np.concatenate([np.zeros(0, np.int64), *(a.in_pieces(size).addresses for a in own)])
