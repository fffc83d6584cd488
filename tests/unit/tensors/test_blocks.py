"""A large tensor a few rows at a time: all of it once, and the same numbers as at once."""

from __future__ import annotations

import math

import pytest
import torch

from tpcheck.tensors.blocks import BLOCK, blocks, farthest, in_rows, largest


@pytest.mark.parametrize("shape", [(BLOCK // 8 * 3, 20), (3, BLOCK + 5), (1, BLOCK * 3)])
def test_every_row_comes_once_in_order(shape: tuple[int, int]) -> None:
    grid = torch.arange(math.prod(shape)).reshape(shape)
    rows = torch.arange(shape[0]).reshape(-1, 1)
    found = [*blocks(grid, rows)]
    assert len(found) > 1 or shape[0] == 1
    assert torch.equal(torch.cat([own for own, _ in found]), grid)
    assert torch.equal(torch.cat([of for _, of in found]), rows)
    assert all(own.numel() <= max(BLOCK, shape[1]) for own, _ in found)


def test_what_is_written_into_a_block_is_in_the_tensor() -> None:
    tensor = torch.zeros(4 * BLOCK)
    for (own,) in blocks(in_rows(tensor.view(64, -1))):
        own.fill_(1.0)
    assert bool(tensor.all())


@pytest.mark.parametrize("rows", [1, 2 * BLOCK])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_largest_number_and_difference_are_found_wherever_they_are(
    rows: int, dtype: torch.dtype
) -> None:
    zeros = torch.zeros(rows, 3, dtype=torch.float64)
    for at, value in ((0, -7.0), (3 * rows - 1, 5.0)):
        other = zeros.to(dtype, copy=True)
        other.view(-1)[at] = value
        assert largest(other) == farthest(zeros, other) == farthest(other, zeros) == abs(value)
    for odd in (math.nan, math.inf, -math.inf):
        other.view(-1)[rows] = odd
        assert not math.isfinite(largest(other)) and not math.isfinite(farthest(other, zeros))
