"""σ of each element from few runs: what they share, jumps, the reference's own error."""

from __future__ import annotations

import pytest
import torch

from tests.unit.bounds.noisy import F64, alone, spread
from tpcheck.bounds.spread import of_integers, spreads


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


@pytest.mark.parametrize("shape", [(40,), (1, 40), (8, 5)])
def test_what_overflows_says_nothing_of_the_others(shape: tuple[int, ...]) -> None:
    """Numbers beyond float16, which float64 has, and their errors."""
    rng = torch.Generator().manual_seed(0)
    runs = torch.randn(6, 1, *shape, generator=rng, dtype=F64)
    over = torch.arange(40).reshape(1, *shape) % 4 == 1
    loud = torch.where(over, 1e17 * runs, runs)
    (calm,) = spreads(runs, runs[0], dtype=torch.float16)
    (found,) = spreads(loud, loud[0], dtype=torch.float16, finite=~over)
    assert found.sigma[over[0]].isinf().all()
    ratio = found.sigma[~over[0]] / calm.sigma[~over[0]]
    assert float(ratio.min()) > 0.6 and float(ratio.max()) < 1.6


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


def test_integers_are_exact_but_where_a_run_shows_a_jump() -> None:
    none = torch.zeros(3, 5, dtype=F64)
    jump = none.clone()
    jump[1, 2] = 7.0
    for deviations, own in (([none, jump], none), ([none, none], jump)):
        found = of_integers(deviations, own, bools=False)
        assert found.sigma.nonzero().tolist() == [[1, 2]]
        assert float(found.sigma[1, 2]) * found.elementwise_limit(15) > 7.0
    pair = of_integers([none] * 24, none, bools=False, strained=[(jump, none)])
    assert pair.sigma.nonzero().tolist() == [[1, 2]]


def test_a_bool_that_flips_can_not_be_judged() -> None:
    none = torch.zeros(2, dtype=F64)
    found = of_integers([none, torch.tensor([0.0, -1.0])], none, bools=True)
    assert found.sigma.tolist() == [0.0, torch.inf]


@pytest.mark.parametrize("runs", [3, 48])
def test_errors_that_all_come_from_a_few_are_counted_as_these(runs: int) -> None:
    """A mean of the only row moves every number of it: 3 σ of that are 3 σ of the norm, too."""
    rng = torch.Generator().manual_seed(0)
    ways = torch.randn(2, 1000, dtype=F64, generator=rng)

    def drawn(ways: torch.Tensor) -> torch.Tensor:
        return torch.randn(len(ways), dtype=F64, generator=rng) @ ways

    none = torch.zeros(1000, dtype=F64)
    one = spread([drawn(ways[:1]) for _ in range(runs)], none, dtype=torch.float32)
    assert one.independent == pytest.approx(1.0)
    assert one.norm_samples == runs and one.norm_limit(1000) > 6
    two = spread([drawn(ways) for _ in range(runs)], none, dtype=torch.float32)
    assert 1.0 < two.independent < 3.0


def test_errors_that_are_independent_are_counted_each() -> None:
    rng = torch.Generator().manual_seed(0)
    drawn = [torch.randn(1000, dtype=F64, generator=rng) for _ in range(3)]
    found = spread(drawn, torch.zeros(1000, dtype=F64), dtype=torch.float32)
    assert found.independent > 100 and found.norm_samples > 300
    once = spread(drawn[:1], torch.zeros(1000, dtype=F64), dtype=torch.float32)
    assert once.independent == float("inf"), "one run shows nothing of it"
    silent = spread([0 * d for d in drawn], torch.zeros(1000, dtype=F64), dtype=torch.float32)
    assert silent.norm_limit(1000) < 3
    faint = spread([1e-100 * d for d in drawn], torch.zeros(1000, dtype=F64), dtype=torch.float32)
    assert faint.independent == pytest.approx(found.independent)
