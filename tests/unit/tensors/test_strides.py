"""Memory formats: other strides, the same numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tpcheck.case import MEMORY_FORMATS, Case
from tpcheck.tensors.strides import FAR, MOST_FAR, lay_out, repeat_first_row, spanned

SHAPES = [(), (1,), (5,), (3, 4), (1, 4), (2, 3, 4), (0, 3), (3, 0)]


@pytest.mark.parametrize("memory", MEMORY_FORMATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_no_format_changes_a_number_or_shares_memory(
    memory: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    given = torch.randn(shape, dtype=torch.float64).to(dtype)
    laid = lay_out(given.clone(), memory)
    assert laid.dtype == dtype and laid.shape == given.shape and torch.equal(laid, given)


def test_each_format_is_what_it_says() -> None:
    full = torch.randn(2, 3, 4, dtype=torch.float64)
    assert lay_out(full, "contiguous").is_contiguous()
    assert lay_out(full, "transposed").stride() == (12, 1, 3)
    assert lay_out(full, "sliced").stride() == (27, 9, 2)
    assert lay_out(full, "sliced").storage_offset() == 1
    assert lay_out(full, "permuted").stride() == (4, 8, 1)
    assert lay_out(full, "giant").stride() == (FAR, 4, 1)
    offset = lay_out(full, "offset")
    assert offset.is_contiguous() and offset.storage_offset() == 3
    assert lay_out(repeat_first_row(full), "expanded").stride() == (0, 4, 1)


def test_a_transposed_view_of_a_contiguous_tensor_becomes_contiguous_again() -> None:
    turned = torch.randn(3, 4).T
    assert lay_out(turned, "contiguous").is_contiguous()


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4,)], ids=str)
def test_rows_that_differ_are_never_expanded(shape: tuple[int, ...]) -> None:
    full = torch.randn(shape)
    laid = lay_out(full, "expanded")
    assert 0 not in laid.stride() and torch.equal(laid, full)


def test_a_case_of_expanded_memory_repeats_the_first_row() -> None:
    full = torch.randn(3, 2)
    assert torch.equal(repeat_first_row(full), full[0].expand(3, 2))
    assert not torch.equal(repeat_first_row(full), full)


@pytest.mark.parametrize("kept", [torch.randn(5), torch.arange(6).reshape(3, 2)], ids=["1d", "int"])
def test_vectors_and_token_ids_are_not_repeated(kept: torch.Tensor) -> None:
    assert torch.equal(repeat_first_row(kept), kept)


@pytest.mark.parametrize("memory", MEMORY_FORMATS)
def test_a_part_of_a_larger_tensor_gets_a_storage_of_its_own(memory: str) -> None:
    full = torch.randn(1, 6, 12)
    laid = lay_out(full[:, 2:3], memory)
    assert laid.untyped_storage().data_ptr() != full.untyped_storage().data_ptr()
    assert laid.untyped_storage().nbytes() <= 4 * (2 * 12 + 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_what_lies_between_the_elements_is_poison(dtype: torch.dtype) -> None:
    full = torch.zeros(2, 3).to(dtype)
    for memory in ("sliced", "padded", "offset"):
        laid = lay_out(full, memory)
        around = torch.empty(0, dtype=dtype).set_(laid.untyped_storage())
        assert int((around != 0).sum()) == around.numel() - 6 > 0


def test_many_giant_rows_are_reserved_and_not_used() -> None:
    laid = lay_out(torch.ones(MOST_FAR, 2, dtype=torch.float64), "giant")
    assert laid.stride() == (FAR, 1) and laid.sum() == 2 * MOST_FAR
    assert lay_out(torch.ones(MOST_FAR + 1, 2), "giant").is_contiguous()


def test_what_rows_that_are_far_apart_span() -> None:
    case = Case({"rows": 3}, memory="giant")
    rows, one = torch.ones(3, 2), torch.ones(2, 2)
    assert spanned(case, {"x": one}, {"x": rows, "y": one}) == 2 * FAR * 4
    assert spanned(case, {"x": rows.bfloat16()}) == 2 * FAR * 2
    for none in (torch.ones(3), torch.ones(1, 3), torch.ones(MOST_FAR + 1, 1), rows.long()):
        assert spanned(case, {"x": none}) == 0
    assert spanned(replace(case, memory="padded"), {"x": rows}) == 0


@pytest.mark.parametrize("memory", ["padded", "sliced", "offset"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_of_torchs_own_use_none_of_it(memory: str, dtype: torch.dtype) -> None:
    """In bfloat16 the number behind a row is multiplied by zero, on some processors."""
    x, weight = torch.randn(33, 31).to(dtype), torch.randn(8, 31).to(dtype)
    due = torch.nn.functional.linear(x, weight)
    found = torch.nn.functional.linear(lay_out(x, memory), lay_out(weight, memory))
    assert torch.allclose(found, due, rtol=0.05, atol=0.05)
