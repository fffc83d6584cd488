"""Buffers that a candidate computes: a few roundings, more, and something else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tpcheck.bounds.computed import alike, unlike
from tpcheck.vocabulary import Kind

FREQUENCIES = 10_000.0 ** (-torch.arange(32).double() / 32)


def _wrong(here: Tensor, due: Tensor) -> bool:
    found = unlike(here, due, name="b", rank=1)
    assert found is None or (found.tensor, found.kind, found.rank) == ("b", Kind.PARAM, 1)
    return found is not None


def test_two_formulas_for_one_table_are_alike() -> None:
    by_log = torch.exp(-torch.arange(32).float() / 32 * math.log(10_000.0))
    assert not torch.equal(by_log, FREQUENCIES.float())
    assert alike(by_log, FREQUENCIES.float()) and alike(by_log.double(), FREQUENCIES)
    positions = torch.arange(64)[:, None]
    angles = positions * by_log
    assert alike(angles.cos(), (positions * FREQUENCIES).cos().float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_in_bfloat16_is_neither(dtype: torch.dtype) -> None:
    rounded = FREQUENCIES.bfloat16().to(dtype)
    assert not alike(rounded, FREQUENCIES.to(dtype))
    assert _wrong(rounded, FREQUENCIES.to(dtype))
    slightly = FREQUENCIES * (1 + 2e-5)
    assert not alike(slightly.to(dtype), FREQUENCIES.to(dtype))
    assert not _wrong(slightly.to(dtype), FREQUENCIES.to(dtype))


def test_in_a_low_precision_it_is_alike() -> None:
    assert alike(FREQUENCIES.float().bfloat16(), FREQUENCIES.bfloat16())
    assert _wrong(FREQUENCIES.bfloat16() * 1.5, FREQUENCIES.bfloat16())


@pytest.mark.parametrize(
    ("here", "due", "at"),
    [
        ([1, 2, 4], [1, 2, 3], (2,)),
        ([True, True], [True, False], (1,)),
        ([0.0, 1.0], [-math.inf, 1.0], (0,)),
        ([-math.inf, 1.0], [0.0, 1.0], (0,)),
        ([math.nan, 1.0], [1.0, 1.0], (0,)),
        ([[1.0, 1.0], [1.0, 9.0]], [[1.0, 1.0], [1.0, 1.0]], (1, 1)),
    ],
)
def test_where_it_is_wrong(here: list[float], due: list[float], at: tuple[int, ...]) -> None:
    assert not alike(torch.tensor(here), torch.tensor(due))
    found = unlike(torch.tensor(here), torch.tensor(due), name="b", rank=0)
    assert found is not None and found.index == at


@pytest.mark.parametrize(
    "values", [[], [0.0, 0.0], [-math.inf, 0.0], [math.nan], [True, False], [3, -1]]
)
def test_the_same_numbers_are_alike(values: list[float]) -> None:
    tensor = torch.tensor(values)
    assert alike(tensor.clone(), tensor) and not _wrong(tensor.clone(), tensor)
