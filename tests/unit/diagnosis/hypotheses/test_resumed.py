"""What a checkpoint of training left, as loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tpcheck import Case, Shard
from tpcheck.bounds.spread import Spread
from tpcheck.diagnosis.facts import Facts
from tpcheck.diagnosis.hypotheses.resumed import misresumed
from tpcheck.evidence import Values
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import Key
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

NAME = "w.exp_avg"


def facts_of(value: torch.Tensor, held: list[torch.Tensor]) -> Facts:
    spread = Spread(torch.full_like(value, 1e-12), 9, 99)
    target = Target(Kind.OPTIMIZER_STATE, NAME, Shard(0), value.dtype, value, spread)
    key = Key(Kind.OPTIMIZER_STATE, NAME)
    wrong = Mismatch(NAME, Kind.OPTIMIZER_STATE, 0, detail=Values(0, 0, 0))
    given: dict[str, Any] = {
        "resumes": True,
        "case": Case(mesh={"tp": len(held)}),
        "result": SimpleNamespace(mismatches=[wrong]),
        "dumps": {rank: {key: part} for rank, part in enumerate(held)},
        "target": lambda mismatch: target,
        "data_of": lambda mismatch: 0,
        "posed": SimpleNamespace(problems=[SimpleNamespace(targets=[target])]),
    }
    return cast("Facts", SimpleNamespace(**given))


@pytest.mark.parametrize(
    ("second", "code"), [([0.0, 0.0], "shard-order"), ([3.0, 4.0], "unwritten-memory")]
)
def test_zeros_are_nothing_but_where_another_rank_has_them(second: list[float], code: str) -> None:
    value = torch.tensor([[1.0, 2.0], second]).double()
    held = [torch.zeros(1, 2).double(), value[:1]]
    found = misresumed(facts_of(value, held))
    assert found is not None and found.code == code
