"""Numbers are among others where those next to them are not: else it may be chance."""

from __future__ import annotations

import pytest
import torch

from tpcheck.tensors.among import FEW, Numbers
from tpcheck.tensors.among import are_among as among


def are_among(numbers: torch.Tensor, others: torch.Tensor) -> bool:
    return among(numbers, Numbers(others))


FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def _drawn() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_in_another_order_are_among_others(dtype: torch.dtype) -> None:
    own = torch.randn(6, 5, dtype=torch.float64).to(dtype)
    others = torch.cat([torch.ones(7, dtype=dtype), own.flatten().flip(0), own.flatten()])
    assert are_among(own, others) and are_among(own.T, others[7:37])
    assert not are_among(own, others[8:37])  # all but one
    assert not are_among(own[:0], others)


def test_two_small_numbers_are_enough_where_none_is_near() -> None:
    own = torch.randn(2)
    assert are_among(own, torch.cat([torch.randn(50), own]))
    assert not are_among(own[:1], torch.cat([torch.randn(50), own]))


def test_what_chance_explains_is_not_among_others() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    for count in (2, 20, 2000):
        assert not are_among(torch.randn(count).bfloat16(), every)
    assert Numbers(every).are_most and not Numbers(torch.randn(100_000).bfloat16()).are_most
    own, others = torch.randn(4).bfloat16(), torch.randn(2000).bfloat16()
    assert not are_among(own, torch.cat([others, own]))


def test_whole_numbers_tell_nothing() -> None:
    some = torch.arange(-50.0, 50.0)
    assert not are_among(some, some) and not are_among(torch.ones(4), torch.ones(9))


def test_of_many_numbers_some_are_enough_to_tell_chance() -> None:
    own = torch.randn(100_000)
    assert are_among(own, own.flip(0)) and not are_among(own, own[1:])
    half = own.bfloat16()
    assert are_among(half, half) and not are_among(half, half[half != half[0]])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 40])
def test_what_is_among_them_is_bit_for_bit(count: int, dtype: torch.dtype) -> None:
    numbers = torch.linspace(-3.0, 3.0, count).to(dtype)
    others = torch.cat([numbers[::2], torch.tensor([9.0, -9.0], dtype=dtype)])
    assert Numbers(others).have(numbers).tolist() == [k % 2 == 0 for k in range(count)]
    assert not Numbers(others[:0]).have(numbers).any()


def test_numbers_on_a_grid_are_among_others_on_it_by_chance() -> None:
    eighths = torch.arange(400.0) / 8
    own, scratch = eighths[[81, 83, 90, 101, 115, 130]], eighths[torch.randperm(400)]
    short, halves = torch.randn(8).bfloat16().float(), torch.tensor([0.5, 0.25, 0.125, 2**-5])
    powers = 2.0 ** -torch.arange(24)
    assert not are_among(own, scratch) and not are_among(halves, powers)
    assert are_among(own, torch.cat([torch.randn(200), own]))
    assert are_among(short, torch.cat([torch.randn(200), short]))
    many = torch.randn(200_000).bfloat16().float()
    assert not are_among(short, torch.cat([many, short]))
    assert are_among(many[:2000], many)
