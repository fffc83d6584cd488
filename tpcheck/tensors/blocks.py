"""Large tensors a block of rows at a time: what one operation leaves is still in the core's cache
when the next one reads it, which takes a third of the time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: Elements of a block: 256 KiB in float64. More, and a handful of them no longer fits the cache;
#: fewer, and an operation's own cost is most of what it takes.
BLOCK = 1 << 15


def in_rows(tensor: Tensor) -> Tensor:
    """[rows, columns]; a vector is one row."""
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim >= 2 else tensor.reshape(1, -1)


def blocks(*grids: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each, views; all at once where they are few, or on a GPU.

    Args:
        grids: [rows, columns], or [rows, 1], of as many rows each; some.
    """
    rows, columns = grids[0].shape
    if rows * columns <= BLOCK or grids[0].device.type != "cpu":
        yield grids
        return
    most = max(1, BLOCK // max(1, columns))
    for first in range(0, rows, most):
        yield tuple(grid[first : first + most] for grid in grids)


def farthest(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors of one shape, which have elements; NaN where one is."""
    pairs = blocks(in_rows(one), in_rows(other))
    return float(torch.stack([_largest(a - b) for a, b in pairs]).amax())


def largest(tensor: Tensor) -> float:
    """The largest size of a tensor's elements, of which there are some; NaN where one is."""
    return float(_largest(tensor))


def _largest(tensor: Tensor) -> Tensor:
    low, high = torch.aminmax(tensor)
    return torch.maximum(-low, high)
