"""How far off a rounding may be, below the normal range, too."""

from __future__ import annotations

import pytest
import torch

from tpcheck.bounds.arithmetic import rounding


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_numbers_that_are_rounded_to_nearest_are_inside(dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).smallest_normal
    draw = torch.Generator().manual_seed(0)
    each = torch.rand(1000, generator=draw, dtype=torch.float64)
    for size in (1.0, smallest, smallest / 100):
        numbers = each * size
        off = (numbers.to(dtype).double() - numbers).abs()
        assert bool((off <= rounding(numbers, dtype)).all()), size
        assert bool((off > 0.9 * rounding(numbers, dtype)).any()), "and no wider"


def test_zero_is_exact() -> None:
    assert not rounding(torch.zeros(3), torch.float16).any()
