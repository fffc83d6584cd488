"""Tensors as source: what is read back is the same tensor over the same storage."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from torch import Tensor

from tpcheck.errors import InvalidArgument
from tpcheck.script import literals
from tpcheck.script.parts.tensors import stored
from tpcheck.tensors.forms import FLOATS, INTEGERS
from tpcheck.tensors.strides import lay_out


def back(tensor: Tensor) -> Tensor:
    names = {"torch": torch, "stored": stored, "nan": nan, "inf": inf}
    return eval(literals.tensor(tensor), names)


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.untyped_storage().tolist())


@pytest.mark.parametrize("memory", ["contiguous", "transposed", "sliced", "padded", "offset"])
@pytest.mark.parametrize("rows", [0, 1, 3, 40])
@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_strides_and_surroundings_come_back(
    dtype: torch.dtype, rows: int, memory: str
) -> None:
    given = lay_out(torch.randn(rows, 5, dtype=torch.float64).to(dtype), memory)
    again = back(given)
    assert (again.dtype, again.shape, again.stride()) == (dtype, given.shape, given.stride())
    assert again.storage_offset() == given.storage_offset() and bits(again) == bits(given)


@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_giant_rows_come_back_over_reserved_memory(dtype: torch.dtype, count: int) -> None:
    given = lay_out((100 * torch.randn(3, count)).to(dtype), "giant")
    source = literals.tensor(given)
    again = back(given)
    assert len(source) < 10_000 and torch.equal(again, given)
    assert (again.dtype, again.stride()) == (dtype, given.stride())
    assert again.untyped_storage().nbytes() == given.untyped_storage().nbytes() > literals.LARGEST


def test_expanded_rows_share_their_storage_again() -> None:
    given = lay_out(torch.ones(4, 3), "expanded")
    assert given.stride() == (0, 1)
    assert back(given).stride() == (0, 1) and bits(back(given)) == bits(given)


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.itemsize == 8 or d == torch.bool])
@pytest.mark.parametrize("count", [3, 200])
def test_integers_come_back(dtype: torch.dtype, count: int) -> None:
    given = torch.arange(count, dtype=torch.int64).view(torch.int64).to(dtype)
    assert torch.equal(back(given), given)


@pytest.mark.parametrize("count", [1, 100])
def test_what_is_not_finite_and_the_sign_of_zero_come_back(count: int) -> None:
    given = torch.tensor([nan, inf, -inf, -0.0, 5e-324] * count, dtype=torch.float64)
    again = back(given)
    assert torch.equal(again.isnan(), given.isnan())
    assert torch.equal(again.nan_to_num(), given.nan_to_num())
    assert torch.equal(again.signbit()[1:], given.signbit()[1:])


def test_a_tensor_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="this case has one of"):
        literals.tensor(torch.zeros(literals.LARGEST // 8 + 1, dtype=torch.float64))
