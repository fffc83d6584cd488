"""Products as sums of partial products, rounded as an all-reduce leaves them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tpcheck.bounds.split import SplitProducts


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def in_parts(a: Tensor, b: Tensor, degree: int) -> Tensor:
    """By hand: each part rounded, and each sum."""
    pairs = zip(a.tensor_split(degree, -1), b.tensor_split(degree, -2), strict=True)
    total, *others = (left @ right for left, right in pairs)
    for part in others:
        total = (total.double() + part.double()).to(a.dtype)
    return total


@pytest.mark.parametrize("degree", [2, 3, 4])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_product_is_the_sum_of_its_parts(degree: int, batch: tuple[int, ...]) -> None:
    a, b = drawn(*batch, 5, 22), drawn(*batch, 22, 7)
    with SplitProducts(degree):
        found = a @ b
    assert torch.equal(found, in_parts(a, b, degree))
    assert not torch.equal(found, a @ b)


def test_a_bias_joins_after_the_sum() -> None:
    x, weight, bias = drawn(5, 22), drawn(7, 22), drawn(7)
    with SplitProducts(2):
        found = F.linear(x, weight, bias)
        scaled = torch.addmm(bias, x, weight.T, beta=2, alpha=3)
    assert torch.equal(found, bias + in_parts(x, weight.T, 2))
    assert torch.equal(scaled, bias * 2 + in_parts(x, weight.T, 2) * 3)


def test_products_of_backward_are_split_too() -> None:
    x, weight, cotangent = drawn(6, 8).requires_grad_(), drawn(8, 12), drawn(6, 12)
    with SplitProducts(3):
        (x @ weight).backward(cotangent)
    assert x.grad is not None and torch.equal(x.grad, in_parts(cotangent, weight.T, 3))


@pytest.mark.parametrize(("degree", "inner"), [(1, 22), (4, 1), (4, 0)])
def test_what_has_one_part_is_as_it_was(degree: int, inner: int) -> None:
    a, b = drawn(5, inner), drawn(inner, 7)
    with SplitProducts(degree):
        assert torch.equal(a @ b, (a.float() @ b.float()).to(a.dtype))


def test_fewer_terms_than_ranks_are_a_part_each() -> None:
    a, b = drawn(5, 3), drawn(3, 7)
    with SplitProducts(8):
        assert torch.equal(a @ b, in_parts(a, b, 3))
