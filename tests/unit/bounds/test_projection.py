"""A common factor shows along the tensor itself, well below what one element may be off."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from properties.linear import row_linear
from tests.unit.bounds.noisy import scale
from tpcheck import Layout
from tpcheck.bounds import projection
from tpcheck.bounds.compare import Comparison, compare
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.evidence import Values
from tpcheck.oracle.effort import CONFIRM, Effort
from tpcheck.oracle.pose import pose
from tpcheck.protocol.problem import Target
from tpcheck.vocabulary import Kind

CASE = Case(
    dims={"batch": 2, "seq": 8, "in_features": 64, "out_features": 64, "bias": True},
    dtype="bfloat16",
)


def target(case: Case = CASE, effort: Effort = CONFIRM) -> Target:
    problem = pose(row_linear.spec, case, effort).problems[0]
    return next(t for t in problem.targets if t.kind == "output")


def judged(of: Target, actual: Tensor) -> Comparison:
    return compare(actual, of.value, of.spread, name="y", kind=Kind.OUTPUT, rank=0)


def test_a_common_factor_is_found_where_no_element_shows_it() -> None:
    of = target()
    assert judged(of, of.value).mismatch is None
    found = judged(of, of.value * 1.003).mismatch
    assert found is not None and isinstance(found.detail, Values)
    assert (found.detail.wrong, found.detail.norm_error) == (0, None)
    assert found.detail.gain_error == pytest.approx(0.003)
    assert 0 < (found.detail.gain_bound or 0) < 0.003
    without = replace(of, spread=replace(of.spread, gain=0.0))
    assert judged(without, of.value * 1.003).mismatch is None


def test_rounding_itself_is_no_common_factor() -> None:
    of = target()
    assert of.own is not None
    assert judged(of, of.own).mismatch is None
    for seed in range(20):
        rng = torch.Generator().manual_seed(seed)
        noise = torch.randn(of.value.shape, generator=rng, dtype=torch.float64)
        found = judged(of, of.value + noise * of.spread.sigma)
        assert found.mismatch is None and found.usage < 1.0


def test_part_of_a_tensor_is_not_projected() -> None:
    """The spread of z is that of the full tensor: a slice's errors add up to another."""
    of = target()
    spread = replace(of.spread, sigma=of.spread.sigma[..., :32])
    half = of.value[..., :32]
    found = compare(half * 1.003, half, spread, name="y", kind=Kind.OUTPUT, rank=0)
    assert found.mismatch is None


def test_the_spread_is_measured_on_correlated_errors() -> None:
    """Errors that share one factor: z is as wide as they are, not 1/√n of it."""
    rng = torch.Generator().manual_seed(0)
    value = torch.randn(32, 32, generator=rng, dtype=torch.float64)
    sigma = torch.full_like(value, 1e-3)
    factors = torch.randn(200, generator=rng, dtype=torch.float64) * 1e-3
    zero = torch.zeros_like(value)
    common, samples = scale(value, sigma, [value * f for f in factors], zero, [], repeats=1)
    assert projection.relative(value, sigma, common) == pytest.approx(1e-3, rel=0.2)
    apart = [torch.randn(value.shape, generator=rng, dtype=torch.float64) * 1e-3 for _ in factors]
    assert samples == len(factors)
    single, _ = scale(value, sigma, apart, zero, [], repeats=1)
    assert projection.relative(value, sigma, single) == pytest.approx(1e-3 / 32, rel=0.2)
    doubled, _ = scale(value, sigma, apart, zero, [], repeats=4)
    assert doubled == pytest.approx(2 * single)


def test_floors() -> None:
    value, sigma = torch.ones(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    zero, own = torch.zeros_like(value), torch.full_like(value, 0.5)
    # a real rounding is a sample like the others, and half of it a floor
    assert scale(value, sigma, [zero], own, [], repeats=1) == (pytest.approx(2**0.5), 2)
    many = scale(value, sigma, [zero] * 99, own, [], repeats=1)
    assert many == (pytest.approx(1.0), 100)
    jump = (value * 3, -value)  # they don't cancel: 4 · 2 in common
    assert scale(value, sigma, [zero], zero, [jump], repeats=1) == (
        pytest.approx(8.0),
        1,
    )
    cancels = (value, -value)
    assert scale(value, sigma, [zero], zero, [cancels], repeats=1) == (0.0, 1)


def test_exact_and_unjudged_elements_count_for_nothing() -> None:
    value = torch.ones(3, dtype=torch.float64)
    sigma = torch.tensor([1.0, 0.0, math.inf], dtype=torch.float64)
    assert projection.project(value, sigma, torch.tensor([2.0, 5.0, math.inf]).double()) == 2.0
    assert projection.relative(value, torch.zeros_like(sigma), 1.0) == math.inf


def test_equal_numbers_in_the_inputs_are_counted() -> None:
    ids = torch.tensor([[3, 3, 1], [3, 0, 1]])
    x = torch.ones(5, 2, dtype=torch.float64)
    assert projection.repeats_of({"ids": ids, "x": x}, expanded=False) == 3
    assert projection.repeats_of({"ids": ids, "x": x}, expanded=True) == 5
    assert projection.repeats_of({"x": x}, expanded=False) == 1
    width = x.shape[-1]
    assert projection.repeats_of({"x": x}, expanded=False, equal=True) == width
    assert projection.repeats_of({"x": x}, expanded=True, equal=True) == 5 * width
    assert projection.repeats_of({"bias": x[0]}, expanded=True, equal=True) == 1


def test_a_jump_that_turns_both_ways_is_one_of_the_scale_too() -> None:
    value, sigma = torch.ones(1, 4, dtype=torch.float64), torch.full((1, 4), 1e-15).double()
    noisy = 1e-15 * torch.randn(8, 1, 4, dtype=torch.float64)
    up = torch.full((8, 1, 4), 0.1, dtype=torch.float64)
    of = (value, sigma, noisy, 0 * value, (up, -up))
    (with_it, _), (without, _) = (
        projection.scales(*of, repeats=1, wide=wide)[0] for wide in (True, False)
    )
    assert with_it > 1e10 * without
    small = (*of[:4], (1e-13 * up, -1e-13 * up))  # what 128 times the errors leads to
    assert projection.scales(*small, repeats=1, wide=True)[0][0] == without


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_approximation_may_err_in_one_direction(dtype: str) -> None:
    """exp of numbers near one another by 0.6 · 2⁻²⁴ of itself, as numpy's does; what is off by many
    times as much is seen, though no element shows it in bfloat16."""
    spec = replace(
        row_linear.spec,
        reference=lambda case: torch.sigmoid,
        inputs=lambda case, draw: {"x": 1 + draw("x", 1, 8192) / 64},
        layout=lambda case: Layout(),
        linear=False,
    )
    case = Case(dtype=dtype, mesh={"tp": 1})
    of = next(t for t in pose(spec, case, CONFIRM).problems[0].targets if t.kind == "output")
    assert judged(of, of.value * (1 + 0.6 * 2.0**-24)).mismatch is None
    assert judged(of, of.value * (1 + 2.0**-8 * 2.0 ** (-11 * (dtype == "float32")))).mismatch


def test_the_error_of_rstd_is_one_for_a_row() -> None:
    """Which a norm of two passes may have the other way."""
    spec = replace(
        row_linear.spec,
        reference=lambda case: partial(torch.nn.functional.layer_norm, normalized_shape=(4096,)),
        inputs=lambda case, draw: {"x": draw("x", 1, 4096)},
        layout=lambda case: Layout(),
        linear=False,
    )
    of = next(
        t
        for t in pose(spec, Case(dtype="float32", mesh={"tp": 1}), CONFIRM).problems[0].targets
        if t.kind == "output"
    )
    assert judged(of, of.value * (1 + 2.0**-24)).mismatch is None
    assert judged(of, of.value * (1 + 2.0**-20)).mismatch is not None


def test_what_may_overflow_is_not_a_factor_that_all_have() -> None:
    """A sum in another order, whose terms are beyond float16: what it is off by is no rounding."""
    value = torch.tensor([48873.0, 10.0, -20.0], dtype=torch.float64)
    spread = Spread(
        torch.full_like(value, 1e16), 50, 50, gain=1e-32, runs=50, elements=3, largest=65504.0
    )
    over = torch.tensor([math.inf, 10.0, -20.0], dtype=torch.float64)
    for own, agrees in ((over, True), (value * 1.3, False), (over * 1.3, False)):
        found = compare(own, value, spread, name="y", kind=Kind.OUTPUT, rank=0)
        assert (found.mismatch is None) == agrees
    judged = replace(spread, sigma=torch.ones_like(value))
    assert compare(over, value, judged, name="y", kind=Kind.OUTPUT, rank=0).mismatch is not None
