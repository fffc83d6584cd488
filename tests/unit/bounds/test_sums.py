"""Sums over what came there: what one term comes to is exact, and equal terms round one way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.unit.bounds.noisy import F64, noisy, spread


@pytest.mark.parametrize(
    "gathered",
    [
        lambda x, ids: x[ids],
        lambda x, ids: x.index_select(0, ids),
        lambda x, ids: x.gather(0, ids[:, None].expand(-1, x.shape[1])),
        lambda x, ids: x.flatten().take(ids[:, None] * x.shape[1] + torch.arange(x.shape[1])),
        lambda x, ids: F.embedding(ids, x),
    ],
    ids=["index", "index_select", "gather", "take", "embedding"],
)
def test_the_gradient_of_what_is_gathered_rounds_where_terms_meet(gathered: Any) -> None:
    ids = torch.tensor([0, 1, 1, 3, 3, 3])
    upstream = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).bfloat16().to(F64)

    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(gathered(leaf, ids), leaf, upstream)
        return found

    sigma = torch.stack(
        noisy(gradient, torch.zeros(4, 4, dtype=F64), dtype=torch.bfloat16, degree=1)
    ).std(0)
    assert not sigma[[0, 2]].any(), "what one term, or none, came to is exact"
    assert (sigma[[1, 3]] > 2.0**-10 * gradient(torch.zeros(4, 4, dtype=F64))[[1, 3]].abs()).all()


def test_what_replaces_elements_is_exact() -> None:
    def put(x: Tensor) -> Tensor:
        x = x.clone()
        x[torch.tensor([1])] = 3.1
        return x

    assert not torch.stack(
        noisy(put, torch.ones(4, dtype=F64), dtype=torch.bfloat16, degree=1)
    ).any()


def test_a_sum_of_equal_terms_errs_in_one_direction() -> None:
    terms = torch.full((300,), 0.1, dtype=torch.float32)
    total = torch.zeros((), dtype=torch.float32)
    for term in terms:
        total += term
    found = spread(
        noisy(torch.sum, terms.double()[None], dtype=torch.float32, degree=1),
        torch.zeros(()),
        dtype=torch.float32,
    )
    off = abs(float(total.double() - terms.double().sum()))
    assert off > float(found.sigma) * 0.01
    assert off <= found.elementwise_limit(1) * float(found.sigma)


@pytest.mark.parametrize("alpha", [0.125, 8.0])
def test_a_product_that_is_scaled_rounds_as_it_is_written_plainly(alpha: float) -> None:
    a, b, first = (torch.randn(shape, dtype=F64) for shape in ((6, 40), (40, 5), (6, 5)))
    unwritten = torch.full((6, 5), torch.nan, dtype=F64)
    plain = [lambda x: x @ b * alpha, lambda x: first + x @ b * alpha]
    fused = [
        lambda x: torch.addmm(unwritten, x, b, beta=0, alpha=alpha),
        lambda x: torch.addmm(first, x, b, alpha=alpha),
    ]
    for one, other in zip(plain, fused, strict=True):
        sizes = [
            float(torch.stack(noisy(f, a, dtype=torch.bfloat16, degree=2)).square().mean())
            for f in (one, other)
        ]
        assert 0.4 < sizes[1] / sizes[0] < 2.5, sizes


def test_rows_that_are_added_times_a_number_round_as_they_are_then() -> None:
    rows, at = torch.randn(12, 5, dtype=F64), torch.tensor([0, 1, 2] * 4)
    zeros = torch.zeros(3, 5, dtype=F64)
    sizes = [
        float(torch.stack(noisy(f, rows, dtype=torch.bfloat16, degree=2)).square().mean())
        for f in (
            lambda x: zeros.index_add(0, at, x * 2.0**-6),
            lambda x: zeros.index_add(0, at, x, alpha=2.0**-6),
        )
    ]
    assert 0.4 < sizes[1] / sizes[0] < 2.5, sizes
