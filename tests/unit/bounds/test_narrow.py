"""What may overflow in float16, or not, as rounding or the order of a sum has it, is not judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.unit.bounds.noisy import F64, noisy, spread
from tpcheck.bounds.arithmetic import LARGEST, NARROW, OVERFLOW, Arithmetic
from tpcheck.bounds.lanes import Drawn, Lanes, NoiseInLanes
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.scales import Scales

UP = torch.tensor([[8e3, 8e3, 8e3, -8e3, -8e3, -8e3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], dtype=F64)


def judged(function: Callable[..., Tensor], *given: Tensor, dtype: torch.dtype) -> list[bool]:
    exact = function(*given)
    found = spread(
        noisy(function, *given, dtype=dtype, degree=2), torch.zeros_like(exact), dtype=dtype
    )
    return found.sigma.isfinite().flatten().tolist()


@pytest.mark.parametrize(("dtype", "large"), [(torch.float16, False), (torch.float32, True)])
@pytest.mark.parametrize("total", [torch.sum, torch.mean], ids=["sum", "mean"])
def test_a_sum_whose_parts_overflow(
    total: Callable[..., Tensor], dtype: torch.dtype, large: bool
) -> None:
    assert judged(lambda x: total(x, 1), UP, dtype=dtype) == [large, True]


@pytest.mark.parametrize(("dtype", "large"), [(torch.float16, False), (torch.float32, True)])
def test_the_gradients_of_a_norm_whose_parts_overflow(dtype: torch.dtype, large: bool) -> None:
    upstream = UP.T.contiguous()
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=F64)

    def gradient(weight: Tensor, bias: Tensor) -> Tensor:
        leaf = bias.detach().requires_grad_()
        (found,) = torch.autograd.grad(F.layer_norm(x, (2,), weight, leaf), leaf, upstream)
        return found

    ones = torch.ones(2, dtype=F64), torch.zeros(2, dtype=F64)
    assert judged(gradient, *ones, dtype=dtype) == [large, True]


def test_a_number_that_rounding_takes_beyond_the_largest_and_what_follows_from_it() -> None:
    largest = LARGEST[torch.float16]
    near = torch.tensor([largest - 2, 8e3, -largest + 2], dtype=F64)
    assert judged(lambda x: x * 1.0, near, dtype=torch.float16) == [False, True, False]
    assert judged(lambda x: 1.0 + 1e-4 * (x * 1.0), near, dtype=torch.float16)[0] is False
    assert judged(lambda x: x * 1.0, near, dtype=torch.bfloat16) == [True, True, True]


@pytest.mark.parametrize(
    ("function", "order"),
    [
        (lambda x: x + 1.0, True),
        (lambda x: torch.addcmul(x, x, 1e-3 * x), True),
        (lambda x: x * 1.01, False),
        (lambda x: x / 0.99, False),
        (lambda x: x.clone().mul_(1.01), False),
        (lambda x: (x.float() * 1.01).half(), False),
        (lambda x: torch.stack([x, torch.full_like(x, 1.01)]).prod(0), True),
    ],
    ids=["add", "addcmul", "mul", "div", "mul_", "cast", "prod"],
)
def test_a_sum_has_an_order_and_a_product_of_two_numbers_has_none(
    function: Callable[[Tensor], Tensor], order: bool
) -> None:
    near = torch.tensor([NARROW + 2, 8e2, -4 * 8e3], dtype=F64)
    assert judged(function, near, dtype=torch.float16) == [not order, True, not order]


def _dropped(x: Tensor) -> Tensor:
    return (x + 1.0).mul_(torch.tensor([0.0, 0.0, 2.0], dtype=F64))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1.0) * torch.tensor([0.0, 0.0, 2.0], dtype=F64),
        lambda x: torch.tensor([0.0, 0.0, 2.0], dtype=F64) * (x + 1.0),
        lambda x: (x + 1.0) * torch.tensor([False, False, True]),
        _dropped,
        lambda x: torch.diag(x + 1.0) @ torch.zeros(3, 1, dtype=F64),
        lambda x: torch.zeros(1, 3, dtype=F64) @ torch.diag(x + 1.0),
        lambda x: torch.addmm(x[:, None], torch.diag(x + 1.0), torch.zeros(3, 1, dtype=F64)),
    ],
    ids=["mul", "mul_of_the_second", "mul_by_a_mask", "mul_", "mm", "mm_of_the_second", "addmm"],
)
def test_what_may_overflow_times_zero_may_be_nan(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([NARROW + 2, 8e2, 8e2], dtype=F64)
    assert judged(function, x, dtype=torch.float16)[:2] == [False, True]
    assert judged(function, x, dtype=torch.bfloat16) == [True, True, True]


def test_what_is_far_beyond_is_meant_to_be() -> None:
    """As what masks scores: a row of which nothing is left is not infinite, or NaN."""
    scores = torch.tensor([[0.5, -1e200, 0.25], [-1e200] * 3], dtype=F64)

    def masked(x: Tensor) -> Tensor:
        return (x + scores).softmax(-1)

    assert judged(masked, torch.zeros(2, 3, dtype=F64), dtype=torch.float16)[:3] == [True] * 3
    off = torch.stack(noisy(masked, torch.zeros(2, 3, dtype=F64), dtype=torch.float16, degree=2))
    assert bool(off.isfinite().all())


def test_one_strained_run_is_enough() -> None:
    still = [torch.full((2,), 1e-3, dtype=F64)] * 4
    struck = torch.tensor([OVERFLOW**0.5, 1e-3], dtype=F64)
    pair = (struck, torch.full((2,), -1e-3, dtype=F64))
    for pairs in ([pair], [pair[::-1]]):
        found = spread(still, torch.zeros(2), dtype=torch.float16, strained=pairs)
        assert found.sigma.isfinite().tolist() == [False, True]


def test_of_runs_at_once_the_first_has_no_errors_and_stays() -> None:
    drawn = Drawn(1, 1, 8.0)
    noise = NoiseInLanes(Arithmetic(torch.float16, 2), torch.Generator(), Scales(), drawn)
    told = noise._told(Lanes(torch.full((drawn.count, 2), 7e4, dtype=F64)), adds=False)
    assert isinstance(told, Lanes)
    assert bool((told.each[0] == 7e4).all()) and bool((told.each[1:] > 1e100).all())


def test_of_runs_at_once_what_is_times_zero_stands_out_in_all_but_the_first() -> None:
    drawn = Drawn(2, 0, 1.0)
    noise = NoiseInLanes(Arithmetic(torch.float16, 2), torch.Generator(), Scales(), drawn)
    x = torch.tensor([NARROW + 2, 8e2], dtype=F64)
    with noise.anew(), noise:
        y = (x + 1.0) * torch.zeros(2, dtype=F64)
    assert isinstance(y, Lanes)
    assert (y.each.abs() > 1e100).tolist() == [[False, False], [True, False], [True, False]]


def test_in_place_it_stands_out_in_every_run() -> None:
    scales, x = Scales(), torch.tensor([NARROW + 2, 8e2, 8e2], dtype=F64)
    for _ in range(2):
        with RoundingNoise(Arithmetic(torch.float16, 2), torch.Generator(), scales):
            y = _dropped(x)
        assert (y.abs() > 1e100).tolist() == [True, False, False]
