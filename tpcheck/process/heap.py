"""Memory that large tensors leave is kept for the next ones, and not given back to the system.

By default glibc maps every tensor of more than some megabytes anew, and the kernel clears its pages
as they are first written: more than half of what it costs to pose a case of an MLP of hidden 1024,
whose runs make and drop hundreds of such tensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys

#: `mallopt`'s numbers of what is set (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: Bytes above which a tensor is mapped by itself, and of free memory that is kept at the heap's
#: end. Weights of 4096 by 4096 in float64 are half as large. With more, a driver would hold a
#: gigabyte that it needs once.
KEPT = 256 * 2**20


@functools.cache
def keep_freed() -> None:
    """For this process, and those that are forked from it. Does nothing without glibc."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
                mallopt(option, KEPT)
