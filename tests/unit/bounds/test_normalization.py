"""Normalisations whose mean is added up in another way: its error moves a whole row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.unit.bounds.noisy import noisy, spread
from tpcheck.bounds.compare import compare
from tpcheck.vocabulary import Kind

ROWS, WIDTH = 33, 560


def one_after_the_other(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[:, :1])
    for k in range(x.shape[1]):
        total += x[:, k : k + 1]
    return total / x.shape[1]


MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "torch's": lambda x: x.mean(-1, keepdim=True),
    "one after the other": one_after_the_other,
    "by a product": lambda x: x @ x.new_full((x.shape[1], 1), 1 / x.shape[1]),
}


@pytest.mark.parametrize("far", [0.0, 64.0])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("seed", range(4))
def test_a_mean_far_from_zero_moves_rows_alike(mean: str, far: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    x, w, b = (
        torch.randn(*shape, generator=rng) + far for shape in ((ROWS, WIDTH), (WIDTH,), (WIDTH,))
    )

    def exact(x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), w.to(x.dtype), b.to(x.dtype))

    apart = x - MEANS[mean](x)
    right = apart * torch.rsqrt((apart**2).mean(-1, keepdim=True) + 1e-5) * w + b
    own = exact(x).double() - exact(x.double())
    found = spread(noisy(exact, x.double(), dtype=x.dtype, degree=1), own, dtype=x.dtype)
    judged = compare(right, exact(x.double()), found, name="y", kind=Kind.OUTPUT, rank=0)
    assert judged.mismatch is None, judged.mismatch


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("seed", range(4))
def test_equal_squares_that_are_added_to_a_large_one_err_alike(mean: str, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    x = torch.zeros(ROWS, WIDTH)
    x[torch.arange(ROWS), torch.randint(WIDTH, (ROWS,), generator=rng)] = 4.0
    w, b = (torch.randn(WIDTH, generator=rng) for _ in range(2))

    def exact(x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), w.to(x.dtype), b.to(x.dtype))

    apart = x - x.mean(-1, keepdim=True)
    right = apart * torch.rsqrt(MEANS[mean](apart**2) + 1e-5) * w + b
    own = exact(x).double() - exact(x.double())
    found = spread(noisy(exact, x.double(), dtype=x.dtype, degree=1), own, dtype=x.dtype)
    judged = compare(right, exact(x.double()), found, name="y", kind=Kind.OUTPUT, rank=0)
    assert judged.mismatch is None, judged.mismatch
