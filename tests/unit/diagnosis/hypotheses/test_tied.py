"""Hypotheses about a weight of several names: on two stages of a pipeline, or on one rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.compositions import pipeline
from tests.unit.diagnosis.edits import Edit, Ranks, examine, noise
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.causes.tied import TiedSplit, TiedSummedOverAxis, TiedUnsummed
from tpcheck.oracle.pose import Posed
from tpcheck.placement import take

STAGES = Case(
    dims={
        "batch": 1, "seq": 2, "hidden": 4, "layers": 2, "kv_heads": 2, "heads": 2, "head_dim": 1,
        "intermediate": 2, "bias": False, "schedule": "gpipe", "vocab": 5,
    },
    mesh={"pp": 2, "tp": 2},
    microbatches=3,
)  # fmt: skip
EMBED, HEAD = "param_grad/embed.weight", "param_grad/head.weight"


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


# ---- on one rank

SPEC = specs.tied_embedding()
TIED = Case(dims={"batch": 2, "seq": 3, "hidden": 4, "vocab": 7}, mesh={"tp": 2}, seed=3)
NAMES = ("param_grad/embedding.weight", "param_grad/head.weight")


def of_uses(posed: Posed) -> tuple[Tensor, Tensor]:
    """The weight's gradient as it is looked up, and as it multiplies."""
    problem = posed.problems[0]
    ids, x = problem.inputs[0]["ids"], problem.inputs[0]["x"]
    rows, columns = (problem.params["head.weight"].clone().requires_grad_() for _ in range(2))
    logits = (F.embedding(ids, rows) + x) @ columns.T
    found: Any = torch.autograd.grad(logits, (rows, columns), problem.cotangents[0]["output"])
    return found


def counted(looked_up: float, multiplied: float, *only: str) -> Edit:
    """Each use so many times, under all names or under one."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        rows, columns = of_uses(posed)
        full = looked_up * rows + multiplied * columns
        for rank, held in ranks.items():
            for name in only or NAMES:
                entry = posed.params["embedding.weight"]
                held[name] = take(full, entry, case=posed.case, rank=rank).clone()

    return edit


@pytest.mark.parametrize(
    ("looked_up", "multiplied", "code"),
    [
        (1, 0, "gradient-dropped"),
        (0, 1, "gradient-dropped"),
        (2, 1, "summed-twice"),
        (1, 2, "summed-twice"),
        (1, 0.5, "averaged-not-summed"),
        (1, 1.3, "unclassified"),
    ],
)
def test_each_use_counts_once(looked_up: float, multiplied: float, code: str) -> None:
    named = examine(counted(looked_up, multiplied), spec=SPEC, case=TIED)
    assert named.code == code, named


def test_two_weights_in_the_place_of_one_are_told_apart_from_a_use_that_is_dropped() -> None:
    apart = (counted(1, 0, NAMES[0]), counted(0, 1, NAMES[1]))
    named = examine(*apart, spec=SPEC, case=TIED)
    assert (named.code, named.cause) == (
        "tied-weights-split",
        TiedSplit(("embedding.weight", "head.weight")),
    )


def test_noise_is_no_use() -> None:
    assert examine(*map(noise, NAMES), spec=SPEC, case=TIED).code == "unclassified"
