"""The budget of a block is the ring's formulas.

n = batch · seq · hidden elements of an activation.
"""

from __future__ import annotations

import pytest

from tests.candidates import BLOCK
from tpcheck import Case
from tpcheck.specs.block import block_budget

N = 2 * 8 * 16  # of BLOCK


@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
def test_the_budget_is_the_formula(sp: bool) -> None:
    """Under SP with one more gather per layer in backward, for who saves the shard alone."""
    budget = block_budget(Case(dims=BLOCK, mesh={"tp": 4}), sp)
    if sp:
        assert budget.forward == {"all_gather": 2 * N, "reduce_scatter": 2 * N}
        assert budget.backward["reduce_scatter"] == 2 * N
        assert budget.backward["all_gather"] == 2 * N + 2 * N
    else:
        assert (budget.forward, budget.backward["all_reduce"]) == ({"all_reduce": 2 * N}, 2 * N)
