"""Hypotheses about the rows of one wrong tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.unit.diagnosis.edits import OUT, Edit, Ranks, change, examine
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.oracle.pose import Posed

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
