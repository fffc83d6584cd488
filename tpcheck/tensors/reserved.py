"""Memory that is reserved and not used, as of rows that are gigabytes apart. Scripts carry it."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

#: Bytes of a storage that are looked at, at most: of a larger one most is reserved and not used.
SPARSE = 2**30

#: Linux's number, which Python has a name for from 3.12 on.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def reserved(dtype: torch.dtype, length: int) -> Tensor:
    """So many elements, of which those that are written take memory.

    Raises:
        OSError: there are not so many addresses.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    return torch.frombuffer(mmap.mmap(-1, length * dtype.itemsize, flags=flags), dtype=dtype)


def is_sparse(tensor: Tensor) -> bool:
    """Whether its elements may be so far apart that nobody can look at all between them."""
    return tensor.untyped_storage().nbytes() > SPARSE
