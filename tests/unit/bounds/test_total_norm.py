"""The norm of all gradients, of those that a candidate has."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from tpcheck.bounds import total_norm
from tpcheck.case import Case
from tpcheck.placement import Blocks, Entry, Heads, Only, Replicate, Shard, holds, take

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CASE = Case(dims={}, mesh={"pp": 2, "tp": 2, "dp": 2})
SIZES = (512, 16, 1, 256, 64, 560)


def gradients(dtype: torch.dtype, *, equal: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    drawn = [torch.randn(size, dtype=torch.float64) for size in SIZES]
    return [(torch.full_like(t, 0.3) if equal else t).to(dtype) for t in drawn]


def expected(
    given: list[Tensor], order: float, returned: Tensor, ranks: int = 2
) -> total_norm.Expected:
    whole = torch.tensor(1.0, dtype=torch.float64)
    parts = torch.stack([total_norm.part(t, whole, order) for t in given])
    found = total_norm.expected(parts, order, given[0].dtype, ranks, returned)
    assert found is not None
    return found


def usage(found: total_norm.Expected, norm: Tensor) -> float:
    bound = found.spread.elementwise_limit(1) * found.spread.sigma
    return float((norm.double() - found.value).abs() / bound)


def one_after_the_other(given: list[Tensor], order: float) -> Tensor:
    """Each power, and each sum, is stored."""
    total = given[0].new_zeros(())
    for gradient in given:
        total = total + (gradient.abs() ** order).sum()
    root: Tensor = total ** (1.0 / order)
    return root


def by_norms(given: list[Tensor], order: float) -> Tensor:
    norm: Tensor = torch.nn.utils.get_total_norm(given, order)
    return norm


def upcast(given: list[Tensor], order: float) -> Tensor:
    return by_norms([t.float() for t in given] if given[0].itemsize < 4 else given, order)


WAYS: list[tuple[Callable[..., Tensor], float]] = [
    (one_after_the_other, 1.0),
    (one_after_the_other, 2.0),
    (one_after_the_other, 3.0),
    *product((by_norms, upcast), (1.0, 2.0, 3.0, math.inf)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("way", "order"), WAYS)
@pytest.mark.parametrize("equal", [False, True])
def test_a_norm_is_within_the_rounding_of_its_own_arithmetic(
    dtype: torch.dtype, way: Callable[..., Tensor], order: float, equal: bool
) -> None:
    given = gradients(dtype, equal=equal)
    norm = way(given, order)
    found = expected(given, order, norm)
    exact = torch.linalg.vector_norm(torch.cat([t.double() for t in given]), order)
    assert float((found.value - exact).abs()) <= 1e-12 * float(exact)
    assert usage(found, norm) < 0.7


@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 1e-5), (torch.bfloat16, 0.013)])
def test_a_share_that_counts_twice_is_outside(dtype: torch.dtype, share: float) -> None:
    given = gradients(dtype)
    norm = upcast(given, 2.0)
    assert usage(expected(given, 2.0, norm), norm * (1 + share)) > 1


def test_what_may_be_stored_in_the_dtype_is_held_to_its_rounding() -> None:
    given = gradients(torch.bfloat16)
    norm = upcast(given, 2.0)
    fine, coarse = (expected(given, 2.0, n).spread.sigma for n in (norm, norm.bfloat16()))
    assert float(coarse) > 2 * float(fine)


@pytest.mark.parametrize("norm", [1e-4, 300.0])
def test_powers_that_leave_the_dtype_say_nothing(norm: float) -> None:
    given = torch.full((4,), norm / 2, dtype=torch.float16)
    whole = torch.tensor(1.0, dtype=torch.float64)
    parts = total_norm.part(given, whole, 2.0).unsqueeze(0)
    about = (torch.float16, 2, torch.tensor(norm))
    assert total_norm.expected(parts, 2.0, *about) is None
    assert total_norm.expected(parts * torch.nan, 2.0, *about) is None


@pytest.mark.parametrize(
    "entry",
    [
        Replicate(),
        Shard(0),
        Heads(0, 1),
        Blocks(0, ((4, Shard(0)), (3, Heads(0, 1)))),
        {"tp": Shard(1), "pp": Only(1)},
        {"pp": Shard(0), "tp": Shard(0)},
    ],
)
@pytest.mark.parametrize("order", [2.0, math.inf])
def test_each_element_counts_once_over_the_ranks(entry: Entry, order: float) -> None:
    full = torch.randn(7, 3, dtype=torch.float64)
    ranks = total_norm.peers(CASE, 1)
    assert len(ranks) == 4
    shares = total_norm.shares(entry, full.shape, CASE, ranks)
    assert set(shares) == {r for r in ranks if holds(entry, case=CASE, rank=r)}
    parts = [
        total_norm.part(take(full, entry, case=CASE, rank=r), share, order)
        for r, share in shares.items()
    ]
    found = total_norm.together(torch.stack(parts), order)
    powers = full.abs().amax() if order == math.inf else full.square().sum()
    assert torch.allclose(found[0], powers)
    assert float(found[2]) == pytest.approx(21)
