"""Bounds: right arithmetic in any order stays inside, wrong arithmetic does not.

The key property simulates a row-parallel product: K is split over R ranks, each partial product
is rounded to the dtype, and they are summed in the dtype in any order.
Letters: M rows, N columns, K reduction, R degree.
"""

from __future__ import annotations

import contextlib
import random

import pytest
import torch
from torch import Tensor

from tests.unit.bounds.noisy import F64, alone, noisy, spread
from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.compare import Comparison, compare
from tpcheck.bounds.limits import elementwise_limit
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.scales import Scales
from tpcheck.bounds.spread import Spread
from tpcheck.vocabulary import Kind

SIZES = [(8, 2), (8, 8), (37, 3), (64, 8), (128, 4), (512, 2), (512, 8)]  # (K, R)


def matrices(
    k: int, dtype: torch.dtype, seed: int, *, m: int = 11, n: int = 13
) -> tuple[Tensor, Tensor]:
    """x [M, K] and w [K, N], rounded to `dtype`."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(m, k, generator=rng, dtype=F64).to(dtype)
    w = (torch.randn(k, n, generator=rng, dtype=F64) / k**0.5).to(dtype)
    return x, w


def partials(x: Tensor, w: Tensor, degree: int) -> list[Tensor]:
    """Each rank's partial product: accumulated in at least float32, rounded to x's dtype."""
    wide = torch.promote_types(x.dtype, torch.float32)
    pairs = zip(x.to(wide).chunk(degree, 1), w.to(wide).chunk(degree, 0), strict=True)
    return [(a @ b).to(x.dtype) for a, b in pairs]


def summed(parts: list[Tensor], seed: int) -> Tensor:
    """Their sum in their dtype, in a random order."""
    order = random.Random(seed).sample(range(len(parts)), len(parts))
    total = parts[order[0]].clone()
    for i in order[1:]:
        total = total + parts[i]
    return total


def bounds(x: Tensor, w: Tensor, degree: int, seed: int) -> Spread:
    """The product's bounds, as the oracle derives them (its own low-precision run included)."""
    wide = (x.double(), w.double())
    found = noisy(torch.mm, *wide, dtype=x.dtype, degree=degree, seed=seed)
    return spread(found, (x @ w).double() - wide[0] @ wide[1], dtype=x.dtype)


def judged(actual: Tensor, x: Tensor, w: Tensor, limits: Spread) -> Comparison:
    return compare(actual, x.double() @ w.double(), limits, name="y", kind=Kind.OUTPUT, rank=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("k", "degree"), SIZES)
def test_a_split_sum_in_any_order_stays_inside(k: int, degree: int, dtype: torch.dtype) -> None:
    for seed in range(8):
        x, w = matrices(k, dtype, seed)
        limits, parts = bounds(x, w, degree, seed), partials(x, w, degree)
        for order in range(3):
            got = summed(parts, order)
            error = (got.double() - x.double() @ w.double()).abs()
            bound = elementwise_limit(got.numel(), limits.samples) * limits.sigma
            assert bool((error <= bound).all())
            assert judged(got, x, w, limits).mismatch is None


@pytest.mark.parametrize(
    ("dtype", "fault"),
    [(torch.bfloat16, 0.05), (torch.float32, 1e-5), (torch.float64, 1e-12)],
    ids=str,
)
@pytest.mark.parametrize(("k", "degree"), SIZES[::2])
def test_one_partial_slightly_too_large_is_outside(
    k: int, degree: int, dtype: torch.dtype, fault: float
) -> None:
    for seed in range(3):
        x, w = matrices(k, dtype, seed, m=48, n=64)
        limits, parts = bounds(x, w, degree, seed), partials(x, w, degree)
        assert judged(summed(parts, seed), x, w, limits).mismatch is None
        i = seed % degree
        parts[i] = (parts[i].double() * (1 + fault)).to(dtype)
        assert judged(summed(parts, seed), x, w, limits).mismatch is not None


def test_bounds_are_tight_usage_is_neither_tiny_nor_near_one() -> None:
    used = []
    for seed in range(10):
        x, w = matrices(128, torch.bfloat16, seed)
        got = summed(partials(x, w, 4), seed)
        used.append(judged(got, x, w, bounds(x, w, 4, seed)).usage)
    assert 0.05 < max(used) < 0.9


def test_the_defaults_of_assert_close_alarm_on_correct_bfloat16() -> None:
    """Why bounds are derived: at the defaults (rtol 1.6e-2, atol 1e-5) correct sums fail."""
    alarms = 0
    for seed in range(10):
        x, w = matrices(128, torch.bfloat16, seed)
        got = summed(partials(x, w, 4), seed)
        assert judged(got, x, w, bounds(x, w, 4, seed)).mismatch is None
        try:
            torch.testing.assert_close(got, (x.double() @ w.double()).bfloat16())
        except AssertionError:
            alarms += 1
    assert alarms >= 5


def test_noise_does_not_change_the_computation_outside_its_context() -> None:
    x = torch.randn(4, 4, dtype=F64)
    before = x.softmax(-1)
    noisy(lambda t: t.softmax(-1), x, dtype=torch.bfloat16, degree=2)
    assert torch.equal(x.softmax(-1), before)


@pytest.mark.parametrize("ranks", [1, 8])
def test_sums_below_the_normal_range_stay_inside(ranks: int) -> None:
    """Of numbers so small that float16 has only steps of 2⁻²⁴ for their products."""
    x, w = matrices(8, torch.float16, 4)
    x, w = (x.double() * 2**-9).half(), (w.double() * 2**-9).half()
    exact = x.double() @ w.double()
    assert float(exact.abs().max()) < torch.finfo(torch.float16).smallest_normal
    pieces = zip(x.chunk(ranks, 1), w.chunk(ranks, 0), strict=True)
    parts = [a.double() @ b.double() for a, b in pieces]
    total = torch.zeros_like(exact).half()
    for part in parts:
        total = total + part.half()
    found = noisy(lambda a, b: a @ b, x.double(), w.double(), dtype=torch.float16, degree=ranks)
    limits = alone(found)
    assert judged(total, x, w, limits).mismatch is None
    assert float(limits.sigma.max()) < 2.0**-22


def test_a_rounding_of_a_run_s_own_size_turns_no_sign() -> None:
    """Of squares that differ between runs by more than their size: σ of the first run's is that of
    a number a million times as large."""
    arithmetic, scales = Arithmetic(torch.bfloat16, 2), Scales()

    def least(size: float, seed: int, *, anew: bool) -> float:
        noise = RoundingNoise(arithmetic, torch.Generator().manual_seed(seed), scales)
        with noise, noise.anew() if anew else contextlib.nullcontext():
            return float((torch.full((512,), size, dtype=F64).square() * 1.0).min())

    assert least(1.0, 0, anew=False) > 0 > least(1e-3, 1, anew=False)
    assert least(1.0, 0, anew=True) > 0 and 0.9e-6 < least(1e-3, 1, anew=True) < 1e-6


def test_operations_of_a_run_s_own_are_not_the_next_run_s() -> None:
    arithmetic, scales = Arithmetic(torch.float32, 2), Scales()
    for seed in range(2):
        noise = RoundingNoise(arithmetic, torch.Generator().manual_seed(seed), scales)
        with noise:
            with noise.anew():
                torch.ones(3, dtype=F64).exp()
            torch.ones(5, dtype=F64).sqrt() * 3.0
    assert scales.at(0, torch.ops.aten.sqrt.default) is not None
    assert scales.at(2, torch.ops.aten.mul.Tensor) is None


@pytest.mark.parametrize("to", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_cast_to_float8_rounds_alike_in_every_run_but_beside_a_tie(to: torch.dtype) -> None:
    """The reference rounds there as the candidate does; errors of before it decide at a tie."""
    x = torch.tensor([0.7, 1.0, 1.0 + torch.finfo(to).eps / 2, 3.3], dtype=F64)
    straight = noisy(lambda x: x.to(to).to(F64), x, dtype=torch.float32, degree=2)
    assert all(not deviation.any() for deviation in straight)
    scaled = noisy(lambda x: (x * 3 / 3).to(to).to(F64), x, dtype=torch.float32, degree=2)
    moved = torch.stack(scaled) != 0
    assert moved.any(0).tolist() == [False, False, True, False]
