"""Hypotheses about the rows of one wrong tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from tests.unit.diagnosis.edits import OUT, Edit, Ranks, change, examine
from tpcheck import specs
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.rows import permuted
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Replicate
from tpcheck.protocol.problem import Target
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Kind

TOKENS = Case(dims={"batch": 2, "seq": 4, "vocab": 8, "hidden": 3}, mesh={"tp": 2})


def looked_up(row: Callable[[Tensor], Tensor]) -> Edit:
    """Every token at position 1 gets `row(table)`."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        table = posed.problems[0].params["weight"]
        change(OUT, lambda old, r: old[r].index_copy(1, torch.tensor([1]), row(table)))(
            ranks, posed
        )

    return edit


def test_rows_of_other_tokens_name_the_vocabulary() -> None:
    spec = specs.embedding()
    another = looked_up(lambda table: table[5].expand(2, 1, 3))
    nothing = looked_up(lambda table: torch.zeros(2, 1, 3, dtype=table.dtype))
    garbage = looked_up(lambda table: torch.full((2, 1, 3), 7.0, dtype=table.dtype))
    assert examine(another, spec=spec, case=TOKENS).code == "vocab-mask"
    assert examine(nothing, spec=spec, case=TOKENS).code == "vocab-mask"
    assert examine(garbage, spec=spec, case=TOKENS).code == "unclassified"


def rows_of(actual: Tensor, expected: Tensor, sigma: float) -> Diagnosis | None:
    spread = Spread(torch.full_like(expected, sigma), 9, 99)
    target = Target(Kind.OUTPUT, "t", Replicate(), torch.bfloat16, expected, spread)
    sigmas = {0: torch.full_like(expected, sigma)}
    local = Local(target, Case(), [0], {0: actual}, {0: expected}, sigmas)
    return permuted(cast("Facts", None), local)


def test_rows_that_wide_bounds_hold_by_chance_are_in_no_order() -> None:
    """As of the gradient of a norm's weight in a half precision, negated."""
    torch.manual_seed(0)
    whole = torch.randn(12, dtype=torch.float64)
    swapped = whole[torch.tensor([1, 0, *range(2, 12)])]
    assert rows_of(swapped, whole, 1e-5) is not None
    assert rows_of(-whole, whole, 0.05) is None
    assert rows_of(swapped, whole, 0.05) is None
