"""What a benchmark of configurations leaves is not what the launch after it gives."""

from collections.abc import Sequence

import numpy as np
import pytest
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


class Tuner:
    """What of Triton's is asked, with a hook that puts back the first number."""

    def __init__(self, y: Tensor) -> None:
        self.y, self.hooked = y, 0

    def post_hook(self, arguments: object, exception: object) -> None:
        self.hooked += 1
        self.y[0] = 5.0


def benchmark(y: Tensor, *accesses: tuple[Access, list[int]]) -> None:
    """One of a kernel, where others were launched before."""
    tuner = Tuner(y)
    with watch.watching({"y": y}):
        with watch.launch("before", [("y", y)]):
            touch(Access.STORE, y, [7])
        with benchmarks.spoiled(tuner):
            if accesses:
                with watch.launch("tuned", [("y", y)]):
                    for what, at in accesses:
                        touch(what, y, at)
            tuner.post_hook({}, exception=None)
        tuner.post_hook({}, exception=None)
    assert tuner.hooked == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_it_stores_is_poison_and_nothing_beside(dtype: torch.dtype) -> None:
    y = torch.ones(8, dtype=dtype)
    benchmark(y, (Access.STORE, [1, 2]), (Access.STORE, [5]))
    assert y.isnan().tolist() == [i in (1, 2, 5) for i in range(8)]


def test_what_it_reads_or_adds_to_is_left() -> None:
    y = torch.ones(8)
    reads, adds = (Access.LOAD, [0, 1]), (Access.ATOMIC, [3])
    benchmark(y, reads, (Access.STORE, [1, 2]), adds, (Access.STORE, [3, 4]))
    assert y.isnan().tolist() == [i in (2, 4) for i in range(8)]


def test_of_what_is_read_in_part_the_other_part_is_poison() -> None:
    y = torch.ones(8)
    halves = y.view(torch.bfloat16)
    tuner = Tuner(y)
    with watch.watching({"y": y}), benchmarks.spoiled(tuner):
        with watch.launch("tuned", [("y", y)]):
            touch(Access.STORE, y, [1, 2, 3])
            touch(Access.LOAD, halves, [2, 7])
        tuner.post_hook({}, exception=None)
    assert halves.isnan().tolist() == [at in (3, 4, 5, 6) for at in range(16)]


def test_what_its_hook_puts_back_stays() -> None:
    y = torch.ones(8)
    benchmark(y, (Access.STORE, [0, 1]))
    assert y.isnan().tolist() == [i == 1 for i in range(8)] and y[0] == 5.0


def test_a_launch_that_stores_nothing_or_is_refused_leaves_all() -> None:
    y = torch.ones(8)
    benchmark(y, (Access.LOAD, [0, 1]))
    benchmark(y)
    with benchmarks.spoiled(Tuner(y)):
        pass  # nothing is watched
    assert y[1:].tolist() == [1.0] * 7
