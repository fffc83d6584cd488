"""Hypotheses about several tensors of a case."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.unit.diagnosis.edits import CASE, DW, DX, Ranks, alone, examine, noise
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.causes.several import BranchUnsummed, Overwritten
from tpcheck.causes.where import Subject
from tpcheck.oracle.pose import Posed
from tpcheck.tensors.boundaries import Border
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import End, Kind, Phase


def test_one_branch_that_is_not_summed_is_found_by_what_it_sends_back() -> None:
    mlp = {"batch": 1, "seq": 2, "hidden": 4, "intermediate": 8, "activation": "swiglu"}
    dims = mlp | {"norm": "none", "residual": False, "bias": False}

    def edit(ranks: Ranks, posed: Posed) -> None:
        gate = next(
            t
            for t in posed.problems[0].borders
            if t.name == Border(Phase.BACKWARD, "gate", 0, End.IN, "0").key
        )
        for rank, held in ranks.items():
            share = (rank + 1) / 10.0  # of four terms that add up to the whole
            held[DX] = held[DX] - (1 - share) * gate.value

    named = examine(edit, spec=specs.mlp(), case=Case(dims=dims, mesh={"tp": 4}))
    cause = BranchUnsummed(Subject(Kind.INPUT_GRAD, "x"), "gate")
    assert (named.code, named.cause) == ("missing-all-reduce", cause)


@pytest.mark.parametrize(("factor", "code"), [(2.0, "summed-twice"), (0.5, "averaged-not-summed")])
def test_gradients_that_cannot_be_laid_side_by_side_still_have_a_common_factor(
    factor: float, code: str
) -> None:
    case = replace(CASE, mesh={"dp": 2, "tp": 2})
    values = [0.3, -1.7, 2.4, 0.9, -0.2, 5.5]
    wrong = [
        Mismatch(f"w{i // 2}", Kind.PARAM_GRAD, i % 2, (0,), v, factor * v, 1.0, 0.1)
        for i, v in enumerate(values)
    ]
    odd = replace(wrong[3], actual=1.0)
    for mismatches, named in (
        (wrong, code),
        ([*wrong[:3], odd, *wrong[4:]], "unclassified"),
        (wrong[:4], "unclassified"),
    ):
        assert alone(*mismatches, case=case).code == named


def test_what_was_written_over_before_backward_is_a_stale_buffer() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        noise(DW)(ranks, posed)
        ranks[1]["overwritten/mine.py:3"] = torch.zeros(1)

    named = examine(edit)
    assert (named.code, named.cause) == ("stale-buffer", Overwritten("mine.py:3"))
