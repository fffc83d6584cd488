"""The scales of float8 blocks: of a row as a whole, and of what ranks have of it."""

from __future__ import annotations

import pytest
import torch

from tpcheck.specs.float8 import BLOCK, blocks, cast, each, largest

WIDTHS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 2)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_number_has_the_largest_of_its_block(width: int) -> None:
    x = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
    found = largest(x, "block")
    assert found.shape == x.shape
    for k in range(width):
        first = k - k % BLOCK
        assert torch.equal(found[:, k], x[:, first : first + BLOCK].abs().amax(-1))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("cut", [0, 1, 3, BLOCK])
def test_the_parts_of_a_row_have_the_blocks_of_the_whole(width: int, cut: int) -> None:
    x = torch.randn(2, width, generator=torch.Generator().manual_seed(width))
    cut = min(cut, width)
    parts = blocks(x[:, :cut], 0, width), blocks(x[:, cut:], cut, width)
    whole = blocks(x, 0, width)
    assert torch.equal(torch.maximum(*parts), whole)
    both = torch.cat([each(whole, 0, cut), each(whole, cut, width)], -1)
    assert torch.equal(both, largest(x, "block"))


def test_a_block_of_small_numbers_keeps_its_digits() -> None:
    """Beside one of large ones, which a scale for the row would take them away by."""
    x = torch.tensor([[1e6, 2e6, 3e6, 4e6, 1e-3, 2e-3, 3e-3, 4e-3]])
    by_block, by_row = (
        cast(x, largest(x, scaling), torch.float8_e4m3fn) for scaling in ("block", "row")
    )
    torch.testing.assert_close(by_block, x, rtol=2**-4, atol=0.0)
    assert not by_row[0, 4:].any()
