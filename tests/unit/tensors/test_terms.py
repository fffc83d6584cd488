"""Terms of inputs, as ranks are given them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tpcheck import Case, Partial, Shard
from tpcheck.placement import Entry
from tpcheck.tensors.terms import term

CASE = Case(mesh={"ep": 2, "tp": 2}, seed=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.bool])
def test_they_add_up_to_the_bit_and_are_no_whole(dtype: torch.dtype) -> None:
    full = (torch.randn(5, 7, dtype=torch.float64) * 3).to(dtype)
    case = replace(CASE, mesh={"tp": 4})
    held = [term("x", full, Partial(), case, rank) for rank in range(4)]
    total = torch.stack(held).sum(0) if dtype != torch.bool else torch.stack(held).any(0)
    assert torch.equal(total.to(dtype), full)
    assert all((own != 0).any() and not torch.equal(own, full) for own in held)
    assert torch.equal(held[1], term("x", full, Partial(), case, 1))
    assert not torch.equal(held[1], term("y", full, Partial(), case, 1))
    assert not torch.equal(held[1], term("x", full, Partial(), replace(case, seed=4), 1))


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
