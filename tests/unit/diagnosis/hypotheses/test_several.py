"""Hypotheses about several tensors of a case, and weights that two stages of a pipeline have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fixtures.compositions import pipeline
from tests.unit.diagnosis.edits import CASE, DW, DX, Edit, Ranks, alone, examine, noise
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.causes.several import BranchUnsummed, Overwritten, TiedSummedOverAxis, TiedUnsummed
from tpcheck.causes.where import Subject
from tpcheck.oracle.pose import Posed
from tpcheck.tensors.boundaries import Border
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import End, Kind, Phase

STAGES = Case(
    dims={
        "batch": 1, "seq": 2, "hidden": 4, "layers": 2, "kv_heads": 2, "heads": 2, "head_dim": 1,
        "intermediate": 2, "bias": False, "schedule": "gpipe", "vocab": 5,
    },
    mesh={"pp": 2, "tp": 2},
    microbatches=3,
)  # fmt: skip
EMBED, HEAD = "param_grad/embed.weight", "param_grad/head.weight"


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


def on_stage(key: str, stage: int, how: Callable[[Tensor, Ranks], Any]) -> Edit:
    def edit(ranks: Ranks, posed: Posed) -> None:
        for rank, held in ranks.items():
            if posed.case.coordinates(rank)["pp"] == stage:
                held[key] = how(held[key], ranks)

    return edit


def halves(factor: float) -> tuple[Edit, Edit]:
    """Embedding and head have a third and two thirds of their gradient, or a multiple of it."""
    return (
        on_stage(EMBED, 0, lambda grad, ranks: factor * grad / 3),
        on_stage(HEAD, 1, lambda grad, ranks: factor * grad * 2 / 3),
    )


def tied(*edits: Edit) -> Any:
    return examine(*edits, spec=pipeline.tied_spec, case=replace(STAGES, microbatches=2))


def test_the_gradient_of_a_weight_of_two_stages_is_the_sum_of_both() -> None:
    named = tied(*halves(1))
    assert named.code == "partial-not-reduced", named
    assert named.cause == TiedUnsummed(("embed.weight", "head.weight"))
    named = tied(*halves(2))
    assert named.code == "wrong-group"
    assert named.cause == TiedSummedOverAxis(("embed.weight", "head.weight"), "tp")
    other = tied(*halves(1.7)).cause
    assert not isinstance(other, TiedUnsummed | TiedSummedOverAxis)
