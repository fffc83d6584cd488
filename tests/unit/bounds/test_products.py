"""A difference of two sums of the same terms: its errors are as large as the terms are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.unit.bounds.noisy import F64, noisy, spread
from tpcheck.bounds.compare import compare
from tpcheck.bounds.products import Products
from tpcheck.vocabulary import Kind

WIDTH = 16


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * WIDTH**-0.5


def gradient(k: Tensor, v: Tensor, dy: Tensor) -> Callable[[Tensor], Tensor]:
    def of(q: Tensor) -> Tensor:
        leaf = q.detach().requires_grad_()
        y = scores(leaf, k.to(q.dtype)).softmax(-1) @ v.to(q.dtype)
        return torch.autograd.grad(y, leaf, dy.to(q.dtype))[0]

    return of


def by_its_output(q: Tensor, k: Tensor, v: Tensor, dy: Tensor) -> Tensor:
    """As flash attention has it: Σ g p is Σ dy y, of the output as it is stored."""
    q32, k, v, dy = (t.float() for t in (q, k, v, dy))
    p = scores(q32, k).softmax(-1)
    y = (p @ v).to(q.dtype).float()
    return (p * (dy @ v.mT - (dy * y).sum(-1, keepdim=True)) @ k * WIDTH**-0.5).to(q.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_flash_attention_is_inside_where_upstream_times_values_cancels(
    dtype: torch.dtype, length: int, seed: int
) -> None:
    """Of 400 rows some have dy · v near zero, of terms that are not."""
    rng = torch.Generator().manual_seed(seed)
    q, k, v, dy = (
        torch.randn(400, length, WIDTH, generator=rng).to(dtype).to(F64) for _ in range(4)
    )
    exact = gradient(k, v, dy)
    own = gradient(k, v, dy)(q.to(dtype)).double() - exact(q)
    found = spread(noisy(exact, q, dtype=dtype, degree=1), own, dtype=dtype)
    flash = by_its_output(*(t.to(dtype) for t in (q, k, v, dy)))
    judged = compare(flash, exact(q), found, name="q", kind=Kind.INPUT_GRAD, rank=0)
    assert judged.mismatch is None, judged.mismatch


@pytest.mark.parametrize("off", [1e-4, -1e-4])
def test_a_sum_that_is_off_by_little_is_outside(off: float) -> None:
    rng = torch.Generator().manual_seed(0)
    q, k, v, dy = (torch.randn(400, 3, WIDTH, generator=rng).double() for _ in range(4))
    exact = gradient(k, v, dy)
    own = exact(q.float()).double() - exact(q)
    found = spread(noisy(exact, q, dtype=torch.float32, degree=1), own, dtype=torch.float32)
    more = off * (dy * (scores(q, k).softmax(-1) @ v)).sum(-1, keepdim=True)
    wrong = exact(q) + scores(q, k).softmax(-1) * more @ k * WIDTH**-0.5
    judged = compare(wrong.float(), exact(q), found, name="q", kind=Kind.INPUT_GRAD, rank=0)
    assert judged.mismatch is not None


def test_a_view_of_a_product_is_known_and_no_other_tensor_is() -> None:
    products, left, right = Products(), torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    out = left @ right
    products.made("bmm", (left, right), out)
    squares = left.double() ** 2 @ right.double() ** 2
    views: list[Callable[[Tensor], Tensor]] = [
        lambda t: t,
        lambda t: t.view(1, 2, 3, 5),
        lambda t: t.view(-1),
        lambda t: t[1:, 2],
        lambda t: t.permute(2, 0, 1),
        lambda t: t[:1].expand(3, 3, 5),
    ]
    for view in views:
        terms = products.terms(view(out))
        assert terms is not None and terms.count == 4
        assert torch.equal(terms.squares, view(squares))
    for other in (out.clone(), torch.zeros(2, 3, 5), left):
        assert products.terms(other) is None


def test_a_few_products_are_kept() -> None:
    products, outs = Products(), []
    for _ in range(8):
        a, b = torch.randn(2, 2), torch.randn(2, 2)
        outs.append(a @ b)
        products.made("mm", (a, b), outs[-1])
    assert [products.terms(out) is not None for out in outs] == [False] * 4 + [True] * 4
    products.made("mul", (outs[0], outs[1]), outs[0])
    assert products.terms(outs[0]) is None
