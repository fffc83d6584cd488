"""Terms of inputs, as ranks are given them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import permutations
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tpcheck import Case, Partial, Shard
from tpcheck.placement import Entry
from tpcheck.tensors.terms import term

CASE = Case(mesh={"ep": 2, "tp": 2}, seed=3)
PARTIAL = Partial()


KINDS = [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]
SEEDS = range(12)  # of both ways in which there are terms


def terms(full: torch.Tensor, case: Case, entry: Entry = PARTIAL) -> list[torch.Tensor]:
    return [term("x", full, entry, case, rank) for rank in range(case.world_size)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_they_add_up_to_the_bit_in_any_order_and_are_no_whole(
    dtype: torch.dtype, seed: int
) -> None:
    full = (torch.randn(5, 7, dtype=torch.float64) * 3).to(dtype)
    case = replace(CASE, mesh={"tp": 4}, seed=seed)
    held = terms(full, case)
    for order in permutations(held):
        total = reduce(torch.logical_or if dtype == torch.bool else torch.add, order)
        assert total.dtype == dtype and torch.equal(total, full)
    assert not any(torch.equal(own, full) for own in held)
    assert sum(bool((own != 0).any()) for own in held) in (2, 4)
    assert all(torch.equal(own, again) for own, again in zip(held, terms(full, case), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_each_input_and_each_case_has_terms_of_its_own(dtype: torch.dtype) -> None:
    full = torch.randn(5, 7, dtype=dtype)
    cases = [replace(CASE, mesh={"tp": 4}, seed=seed) for seed in SEEDS]
    of = {n: [term(n, full, PARTIAL, case, 1) for case in cases] for n in ("x", "y")}
    assert any(not torch.equal(x, y) for x, y in zip(of["x"], of["y"], strict=True))
    assert any(not torch.equal(of["x"][0], x) for x in of["x"])
    scattered = [(x == 0).any() and (x != 0).any() for x in of["x"]]
    assert any(scattered) is (dtype == torch.float64)


@pytest.mark.parametrize(
    "early", [F.gelu, torch.relu, torch.abs, torch.square, torch.sin], ids=lambda f: f.__name__
)
def test_what_is_not_linear_is_not_the_same_before_their_sum(early: Callable[..., Any]) -> None:
    full = torch.randn(5, 7, dtype=torch.float64)
    same = 0
    for seed in SEEDS:
        held = terms(full, replace(CASE, mesh={"tp": 2}, seed=seed))
        same += torch.equal(early(held[0]) + early(held[1]), early(full))
    assert 0 < same < len(SEEDS)  # where each number is one rank's it is


def test_counts_are_shared_without_a_sign() -> None:
    full = torch.tensor([0, 1, 2, 7, 50])
    shared = 0
    for seed in SEEDS:
        held = terms(full, replace(CASE, mesh={"tp": 2}, seed=seed))
        assert all((own >= 0).all() for own in held)
        shared += not torch.equal(held[0].double().sqrt() + held[1].double().sqrt(), full.sqrt())
    assert shared


@pytest.mark.parametrize(
    "case, full",
    [
        (replace(CASE, integers=True), torch.randn(5, dtype=torch.float64).round() * 2),
        (CASE, torch.full((5,), 40000.0, dtype=torch.float16)),
        (CASE, torch.tensor([1.0, math.inf])),
        (CASE, torch.tensor([1.0, math.nan])),
        (CASE, torch.tensor([1 + 2j])),
    ],
    ids=["integers", "large", "inf", "nan", "complex"],
)
def test_what_could_round_or_overflow_is_one_ranks(case: Case, full: torch.Tensor) -> None:
    for seed in SEEDS:
        for own in terms(full, replace(case, mesh={"tp": 2}, seed=seed)):
            kept = own.isnan() | (own == 0) | (own == full)
            assert kept.all(), own


@pytest.mark.parametrize(
    "entry",
    [{"ep": Shard(1), "tp": Partial()}, {"ep": Partial(), "tp": Partial()}, {"tp": Partial()}],
)
def test_other_axes_cut_as_they_do(entry: Entry) -> None:
    full = torch.randn(6, 8, dtype=torch.float64)
    every = [term("x", full, entry, CASE, rank) for rank in range(4)]
    if entry == {"ep": Shard(1), "tp": Partial()}:
        assert torch.equal(torch.cat([every[0] + every[1], every[2] + every[3]], 1), full)
    elif len(entry) == 2:
        assert torch.equal(torch.stack(every).sum(0), full)
    else:
        assert torch.equal(every[0] + every[1], full) and torch.equal(every[2], every[0])
