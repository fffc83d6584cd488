"""What a benchmark of configurations leaves is not what the launch after it gives."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tpcheck.kernels import benchmarks, watch
from tpcheck.vocabulary import Access


def touch(what: Access, tensor: Tensor, at: Sequence[int]) -> None:
    """A program's lanes, of which the last is masked."""
    size = tensor.element_size()
    pointers = np.array([tensor.data_ptr() + size * i for i in [*at, 10**6]], np.uint64)
    mask = np.array([True] * len(at) + [False])
    values = None if what is Access.LOAD else np.zeros(len(at) + 1, f"u{size}")
    watch.access(what, (0, 0, 0), pointers, size, mask, values)


def test_what_it_stores_is_poison_and_nothing_beside() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        y = torch.ones(8, dtype=dtype)
        with watch.watching({"y": y}):
            with watch.launch("tuned", [("y", y)]):
                touch(Access.STORE, y, [1, 2])
                touch(Access.STORE, y, [5])
            benchmarks.spoil()
        assert y.isnan().tolist() == [i in (1, 2, 5) for i in range(8)]


def test_what_it_reads_or_adds_to_is_left() -> None:
    y = torch.ones(8)
    with watch.watching({"y": y}):
        with watch.launch("tuned", [("y", y)]):
            touch(Access.LOAD, y, [0, 1])
            touch(Access.STORE, y, [1, 2])
            touch(Access.ATOMIC, y, [3])
            touch(Access.STORE, y, [3, 4])
        benchmarks.spoil()
    assert y.isnan().tolist() == [i in (2, 4) for i in range(8)]


def test_a_launch_that_stores_nothing_leaves_all() -> None:
    y = torch.ones(3)
    with watch.watching({"y": y}):
        benchmarks.spoil()
        with watch.launch("tuned", [("y", y)]):
            touch(Access.LOAD, y, [0, 1])
        benchmarks.spoil()
    benchmarks.spoil()
    assert y.tolist() == [1, 1, 1]
