"""The elements of a tensor as addresses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Addresses = NDArray[np.int64]


@dataclass
class View:
    """Of one argument of a launch."""

    name: str
    first: int
    itemsize: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> View:
        """By descending stride; dims of one element and expanded ones hold no address of their
        own."""
        dims = [
            (stride, size)
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            if size > 1 and stride > 0
        ]
        dims.sort(reverse=True)
        sizes = tuple(size for _, size in dims) if tensor.numel() else (0,)
        strides = tuple(stride for stride, _ in dims) if tensor.numel() else (1,)
        return cls(name, tensor.data_ptr(), tensor.element_size(), sizes, strides)

    @classmethod
    def around(cls, name: str, tensor: Tensor) -> View:
        """All of its storage."""
        storage, itemsize = tensor.untyped_storage(), tensor.element_size()
        return cls(name, storage.data_ptr(), itemsize, (storage.nbytes() // itemsize,), (1,))

    @cached_property
    def end(self) -> int:
        """The first address behind it."""
        last = sum((n - 1) * stride for n, stride in zip(self.sizes, self.strides, strict=True))
        return self.first + self.itemsize * (last + 1)

    def reached_by(self, addresses: Iterable[int]) -> bool:
        """Whether one of them is in its memory."""
        return any(self.first <= address < self.end for address in addresses)

    @cached_property
    def nested(self) -> bool:
        """Whether each dim's stride is beyond all that the smaller ones reach."""
        reach = 0
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if stride <= reach:
                return False
            reach += (size - 1) * stride
        return True

    def holds(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Which of the addresses are those of its elements."""
        offsets = addresses - self.first
        inside = (offsets >= 0) & (offsets % self.itemsize == 0)
        if not self.nested:
            return inside & np.isin(offsets, self._offsets())
        rest = offsets // self.itemsize
        for size, stride in zip(self.sizes, self.strides, strict=True):
            index = rest // stride
            inside &= index < size
            rest = rest - index * stride
        return inside & (rest == 0)

    def covers_all(self, addresses: Addresses, low: int, high: int, size: int) -> bool:
        """Whether this number of bytes at each of the addresses are its elements'; `low` and `high`
        are the first and the last of them. Most accesses are to one run of elements, where it takes
        a tenth of the time of `covers`."""
        if self.strides not in ((), (1,)) or size != self.itemsize:
            return bool(self.covers(addresses, size=size).all())
        aligned = (low - self.first) % size == 0 and not ((addresses - low) % size).any()
        return aligned and low >= self.first and high + size <= self.end

    def covers(self, addresses: Addresses, *, size: int) -> NDArray[np.bool_]:
        """At which of the addresses this number of bytes are its elements'."""
        if size == self.itemsize:
            return self.holds(addresses)
        if size < self.itemsize:
            within = (addresses - self.first) % self.itemsize
            return self.holds(addresses - within) & (within + size <= self.itemsize)
        return self.holds(addresses) & self.holds(addresses + (size - self.itemsize))

    def _offsets(self) -> Addresses:
        found = np.zeros(1, np.int64)
        for size, stride in zip(self.sizes, self.strides, strict=True):
            steps = np.arange(size, dtype=np.int64) * stride
            found = (found[:, None] + steps[None, :]).reshape(-1)
        return np.unique(found) * self.itemsize
