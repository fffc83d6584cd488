"""What the reference keeps for backward, at the size of one rank."""

from __future__ import annotations

import gc
import weakref

import torch

from tests.candidates import BLOCK
from tpcheck.case import Case
from tpcheck.specs.block import block_budget
from tpcheck.specs.saved import kept_for_backward


def test_a_rank_may_keep_what_the_reference_keeps_of_its_size() -> None:
    one, four = (block_budget(Case(dims=BLOCK, mesh={"tp": r}), False).saved for r in (1, 4))
    whole = block_budget(Case(dims=BLOCK, mesh={"tp": 4}, memory="sliced"), False).saved
    assert one is not None and four is not None and four < one and whole is None
    sp = block_budget(Case(dims=BLOCK, mesh={"tp": 4}), True).saved
    assert sp is not None and sp < four  # the norms see a quarter of the tokens


def test_parameters_are_not_kept_for_backward_and_a_shared_storage_counts_once() -> None:
    linear, x = torch.nn.Linear(3, 5), torch.ones(2, 3)
    assert kept_for_backward(linear, x) == 6
    twice = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 5))
    assert kept_for_backward(twice, torch.ones(2, 3)) == 6


def test_nothing_that_was_counted_is_held_afterwards() -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh()), torch.ones(2, 3)
    left = [weakref.ref(parameter) for parameter in module.parameters()] + [weakref.ref(x)]
    assert kept_for_backward(module, x) == 6 + 10
    del module, x
    gc.collect()
    assert [ref() for ref in left] == [None] * 3
