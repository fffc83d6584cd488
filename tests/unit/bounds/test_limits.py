"""Limits: how many σ an element, and a tensor, may be off."""

from __future__ import annotations

import torch

from tpcheck.bounds.limits import elementwise_limit, inflation, norm_limit


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
