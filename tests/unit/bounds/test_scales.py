"""Errors that are drawn together are those that each operation would have had alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tpcheck.bounds import scales
from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.scales import Scales, Sigma

RUNS = 4000


def sigma(each: list[list[float]], shared: float | None = None, dim: int | None = None) -> Sigma:
    sizes = torch.tensor(each, dtype=torch.float64)
    return Sigma(sizes, () if shared is None else (torch.full_like(sizes, shared),), dim)


def drawn(of: Sigma, *others: Sigma, amplitude: float = 1.0) -> Tensor:
    """Errors of the first, of many runs."""
    known = Scales()
    first = known.add("first", [of])
    for other in others:
        known.add("other", [None, other])
    generator = torch.Generator().manual_seed(0)
    runs = []
    for _ in range(RUNS):
        known.draw(generator, amplitude)
        assert first.errors[0] is not None
        runs.append(first.errors[0].clone())
    return torch.stack(runs)


OTHERS = (sigma([[9.0]]), sigma([[8.0], [7.0]], shared=5.0, dim=0))


@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "among others"])
@pytest.mark.parametrize(
    ("dim", "alike"), [(None, [(0, 0), (1, 2)]), (0, [(0, 1), (1, 1)]), (-1, [(1, 0), (1, 2)])]
)
def test_what_is_shared_is_shared_along_its_dimension(
    others: tuple[Sigma, ...], dim: int | None, alike: list[tuple[int, int]]
) -> None:
    found = drawn(sigma([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], shared=2.0, dim=dim), *others)
    one, other = (found[:, i, j] for i, j in alike)
    assert torch.equal(one, other)
    assert one.std().item() == pytest.approx(2.0, rel=0.05)
    if dim is not None:
        apart = found[:, 0, 0], found[:, 1, 1]
        assert abs(torch.corrcoef(torch.stack(apart))[0, 1].item()) < 0.1


def test_what_two_results_share_are_two_errors() -> None:
    known, generator = Scales(), torch.Generator().manual_seed(0)
    both = [known.add("op", [sigma([[0.0, 0.0]], shared=1.0, dim=-1)]) for _ in range(2)]
    runs = []
    for _ in range(RUNS):
        known.draw(generator, 1.0)
        runs.append(torch.cat([e[0, :1] for one in both for e in one.errors if e is not None]))
    assert abs(torch.corrcoef(torch.stack(runs).T)[0, 1].item()) < 0.1


@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "among others"])
def test_a_row_may_share_two_errors(others: tuple[Sigma, ...]) -> None:
    zeros = torch.zeros(2, 3, dtype=torch.float64)
    alike, rising = torch.full_like(zeros, 2.0), torch.tensor([0.0, 1.0, 2.0]).double().expand(2, 3)
    found = drawn(Sigma(zeros, (alike, rising), -1), *others)
    assert torch.allclose(found[:, :, 1] - found[:, :, 0], found[:, :, 2] - found[:, :, 1])
    first, second = found[:, 0, 0], found[:, 0, 1] - found[:, 0, 0]
    assert (first.std().item(), second.std().item()) == pytest.approx((2.0, 1.0), rel=0.05)
    for one, other in ((first, second), (first, found[:, 1, 0])):
        assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1].item()) < 0.1


@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "among others"])
def test_each_number_has_errors_of_its_own_size(others: tuple[Sigma, ...]) -> None:
    found = drawn(sigma([[1.0, 10.0], [0.0, 1e-9]]), *others)
    assert found.std(0).flatten().tolist() == pytest.approx([1.0, 10.0, 0.0, 1e-9], rel=0.05)
    assert abs(torch.corrcoef(found[:, 0].T)[0, 1].item()) < 0.1
    both = drawn(sigma([[3.0]], shared=4.0, dim=None), *others)
    assert both.std().item() == pytest.approx(5.0, rel=0.05)


def test_enlarged_errors_are_the_same_ones_and_mirrored() -> None:
    of = sigma([[1.0, 2.0]], shared=3.0, dim=-1)
    plain, up, down = (drawn(of, amplitude=a)[:9] for a in (1.0, 8.0, -8.0))
    assert torch.equal(up, -down)
    assert torch.allclose(up, 8 * plain)
    one = [of.draw(torch.Generator().manual_seed(1), a) for a in (1.0, -4.0)]
    assert torch.allclose(one[0] * -4.0, one[1])


def test_large_ones_are_drawn_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scales, "SMALL", 3)
    known = Scales()
    large, small = known.add("a", [sigma([[1.0] * 4])]), known.add("b", [sigma([[1.0] * 3])])
    known.draw(torch.Generator(), 1.0)
    assert large.errors == [None] and small.errors[0] is not None


def run(known: Scales, seed: int, x: Tensor, turns: int = 1) -> list[Tensor]:
    """What a few operations give."""
    generator, found = torch.Generator().manual_seed(seed), []
    with RoundingNoise(Arithmetic(torch.float32, 1), generator, known):
        for _ in range(turns):
            found += [x.exp(), (x @ x.T), x.cumsum(0).mul_(3.0)]
    return found


def test_later_runs_have_errors_of_the_size_of_the_first() -> None:
    x = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone, known, many = [], Scales(), []
    right = [x.exp(), (x @ x.T), x.cumsum(0).mul_(3.0)]
    for seed in range(1000):
        alone.append([a - b for a, b in zip(run(Scales(), seed, x), right, strict=True)])
        many.append([a - b for a, b in zip(run(known, seed, x), right, strict=True)])
    assert not torch.equal(many[1][0], many[2][0])
    for ones, others in zip(zip(*alone, strict=True), zip(*many, strict=True), strict=True):
        size = torch.stack(ones).std(0)
        assert torch.allclose(torch.stack(others).std(0), size, rtol=0.15)


def test_a_run_that_goes_another_way_has_errors_of_its_own() -> None:
    x = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    known = Scales()
    run(known, 0, x)
    for shape, turns in ((5, 1), (3, 3)):
        drawn = torch.Generator().manual_seed(shape)
        other = torch.randn(shape, shape, dtype=torch.float64, generator=drawn)
        exact = [other.exp(), (other @ other.T), other.cumsum(0).mul_(3.0)] * turns
        for number, seed in enumerate((1, 2)):
            for noisy, right in zip(run(known, seed, other, turns), exact, strict=True):
                # of the largest number: of one that is nearly cancelled it may be any part
                assert 0 < (noisy - right).abs().max() / right.abs().max() < 1e-5, number
