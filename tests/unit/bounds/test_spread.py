"""Limits: how many σ an element, and a tensor, may be off; σ from few runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tpcheck.bounds.spread import Spread, elementwise_limit, inflation, norm_limit, spread

F64 = torch.float64


def alone(deviations: list[Tensor]) -> Spread:
    """The spread of noisy runs whose reference has no error of its own."""
    return spread(deviations, torch.zeros_like(deviations[0]), dtype=torch.bfloat16)


def test_inflation_falls_to_one() -> None:
    found = [inflation(n, 1e-9) for n in (1, 2, 3, 4, 6, 8, 16, 64, 256, 10**4, 10**6, 10**8)]
    assert found == sorted(found, reverse=True)
    assert all(value > 1 for value in found) and found[-1] < 1.001


def test_limits_grow_with_the_elements_of_a_tensor_and_shrink_for_its_norm() -> None:
    sizes = [1, 10, 10**3, 10**6, 10**9]
    worst = [elementwise_limit(n, 10**9) for n in sizes]
    norms = [norm_limit(n, 10**9) for n in sizes]
    assert worst == sorted(worst) and norms == sorted(norms, reverse=True)
    assert 6 < worst[0] < 7 and 8 < elementwise_limit(10**6, 10**9) < 9
    assert norms[-1] < 1.05


def test_few_samples_widen_the_limit_as_students_t_does() -> None:
    limits = [elementwise_limit(10, nu) for nu in (2, 3, 5, 8, 16, 64, 1024, 10**7)]
    assert limits == sorted(limits, reverse=True)
    # P(|T_8| > t) < 1e-9 / 10 begins near t = 46; the bound may be above it, not far
    assert 40 < elementwise_limit(10, 8) < 60
    trials = torch.randn(2_000_000, 9, generator=torch.Generator().manual_seed(0))
    student = trials[:, 0] / trials[:, 1:].square().mean(1).sqrt()
    assert not bool((student.abs() > elementwise_limit(1, 8)).any())


def test_rows_of_another_magnitude_keep_their_own_spread() -> None:
    scale = torch.tensor([1.0, 1e-8, 1.0, 1e-8, 1.0]).double().unsqueeze(1)
    sigma = alone([scale * torch.randn(5, 6, dtype=F64) for _ in range(4)]).sigma
    assert float(sigma[1::2].max()) < 1e-6 and float(sigma[::2].min()) > 0.05


def test_a_tensor_without_elements_has_no_spread() -> None:
    assert alone([torch.zeros(0, 3)] * 2).sigma.shape == (0, 3)


def test_the_references_own_error_is_a_floor() -> None:
    own = torch.full((4, 4), 1e-3, dtype=F64)
    assert float(
        spread([torch.zeros(4, 4)] * 3, own, dtype=torch.float32).sigma.min()
    ) == pytest.approx(1e-3)


def test_a_jump_counts_whole() -> None:
    """One run of many, or what a strained pair has in common, far outside the rest."""
    rng = torch.Generator().manual_seed(0)
    calm = [1e-3 * torch.randn(5, 5, dtype=F64, generator=rng) for _ in range(48)]
    none = torch.zeros(5, 5, dtype=F64)
    steady = spread(calm, none, dtype=torch.bfloat16, strained=[(8 * calm[0], -8 * calm[0])])
    assert float(steady.sigma.max()) < 2.5e-3
    jump = none.clone()
    jump[2, 3] = 1.0
    once = spread([*calm[1:], calm[0] + jump], none, dtype=torch.bfloat16, strained=[(none, none)])
    pair = spread(calm, none, dtype=torch.bfloat16, strained=[(8 * calm[0] + jump, -8 * calm[0])])
    for found in (once, pair):
        assert float(found.sigma[2, 3]) * found.elementwise_limit(25) > 1.0
    assert torch.equal(pair.sigma[:2], steady.sigma[:2])


def test_fewer_alarms_are_wanted_of_the_second_look_than_of_the_first() -> None:
    none = torch.zeros(3, 3, dtype=F64)
    first, second = (
        spread([none + 1] * 8, none, dtype=torch.float32, chance=c) for c in (1e-4, 1e-9)
    )
    assert first.elementwise_limit(9) < second.elementwise_limit(9)
    assert first.norm_limit(9) < second.norm_limit(9)
