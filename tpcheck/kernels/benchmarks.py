"""What the benchmark of an autotuned kernel leaves in outputs. The launch that follows has to write
it again: where it does not, a later one, which no benchmark comes before, leaves what was there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tpcheck.kernels import watch
from tpcheck.kernels.races import Seen
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
    stored: list[Addresses] = []
    read = [np.zeros(0, np.int64)]
    for access in launch.accesses:
        (stored if access.what is Access.STORE else read).append(_bytes(access))
    if not stored:
        return
    written = np.setdiff1d(np.concatenate(stored), np.concatenate(read))
    for run in np.split(written, np.flatnonzero(np.diff(written) != 1) + 1):
        if len(run):
            ctypes.memset(int(run[0]), _POISON, len(run))


def _bytes(access: Seen) -> Addresses:
    """Of its lanes."""
    return access.in_pieces(1).addresses
