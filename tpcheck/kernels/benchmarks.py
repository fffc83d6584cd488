"""What the benchmark of an autotuned kernel leaves in outputs. The launch that follows has to write
it again: where it does not, a later one, which no benchmark comes before, leaves what was there.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tpcheck.kernels import watch
from tpcheck.kernels.races import Seen
from tpcheck.kernels.view import Addresses
from tpcheck.vocabulary import Access

_POISON = 0xFF  # in every byte: NaN in floats of all sizes


def spoil() -> None:
    """Poison in the place of what the last launch has stored and read nothing of. What it also
    reads, or changes by atomics, is left: a benchmark that adds to it makes the kernel wrong."""
    launch = watch.last()
    if launch is None:
        return
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
