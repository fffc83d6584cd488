"""bfloat16 as values: rounded as torch rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tpcheck.kernels import bfloat16

EVERY = torch.arange(2**16, dtype=torch.int32).to(torch.uint16)


def test_every_bit_pattern_stands_for_what_it_does_in_torch() -> None:
    values = bfloat16.from_bits(EVERY.numpy())
    due = EVERY.view(torch.bfloat16).float().numpy()
    assert np.array_equal(values, due, equal_nan=True)
    finite = np.isfinite(values)
    assert np.array_equal(bfloat16.to_bits(values)[finite], EVERY.numpy()[finite])


@pytest.mark.parametrize("scale", [1e-40, 1.0, 1e38])
def test_numbers_are_rounded_to_nearest_ties_to_even(scale: float) -> None:
    drawn = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * scale
    ties = (EVERY[:2048].to(torch.int32) << 16 | 0x8000).view(torch.float32)
    for numbers in (drawn, ties, torch.tensor([torch.inf, -torch.inf, torch.nan])):
        due = numbers.to(torch.bfloat16).float().numpy()
        assert np.array_equal(bfloat16.rounded(numbers.numpy()), due, equal_nan=True)


def test_a_cast_may_cut_off_instead() -> None:
    assert bfloat16.towards_zero(np.float32([1.0078, -1.0078])).tolist() == [1.0, -1.0]
