"""Diagnosis of what pipelines get wrong: microbatches, stages, weights that two stages have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from fixtures.compositions import pipeline
from tests.unit.diagnosis.test_diagnose import CASE, COLUMN, DW, OUT, Edit, Ranks, examine, times
from tpcheck.case import Case
from tpcheck.diagnosis import diagnose
from tpcheck.diagnosis.evidence import Facts, Local
from tpcheck.diagnosis.hypotheses import microbatches
from tpcheck.oracle.pose import Posed, evaluate, pose
from tpcheck.protocol.problem import Problem
from tpcheck.verdict import CaseResult, Mismatch

THREE = replace(CASE, mesh={"tp": 2}, microbatches=3)
STAGES = Case(
    dims={
        "batch": 1, "seq": 2, "hidden": 4, "layers": 2, "kv_heads": 2, "heads": 2, "head_dim": 1,
        "intermediate": 2, "bias": False, "schedule": "gpipe", "vocab": 5,
    },
    mesh={"pp": 2, "tp": 2},
    microbatches=3,
)  # fmt: skip
EMBED, HEAD = "param_grad/embed.weight", "param_grad/head.weight"


def passes_of(key: str) -> list[str]:
    return [key, f"{key}@1", f"{key}@2"]


def in_order(key: str, order: list[int]) -> Edit:
    """The m-th pass has what the `order[m]`-th should have."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        for held in ranks.values():
            own = [held[name] for name in passes_of(key)]
            held.update(zip(passes_of(key), [own[i] for i in order], strict=True))

    return edit


def from_cotangents(order: list[int]) -> Edit:
    """The gradients of a backward whose cotangents come in another order."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        other = replace(problem, cotangents=[problem.cotangents[i] for i in order])
        _put(ranks, posed, other)

    return edit


def kept(*passes: int) -> Edit:
    """The gradient of some microbatches."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        cotangents = [
            {name: t if m in passes else 0 * t for name, t in given.items()}
            for m, given in enumerate(problem.cotangents)
        ]
        _put(ranks, posed, replace(problem, cotangents=cotangents), "param_grad")

    return edit


def _put(ranks: Ranks, posed: Posed, problem: Problem, *kinds: str) -> None:
    from tpcheck.placement import take

    values = evaluate(COLUMN, posed.case, problem)[0]
    for target in posed.problems[0].targets:
        if "grad" in target.kind and (not kinds or target.kind in kinds):
            for rank, held in ranks.items():
                value = values[target.kind, target.name]
                held[f"{target.kind}/{target.name}"] = take(
                    value, target.entry, case=posed.case, rank=rank
                )


@pytest.mark.parametrize(
    ("edit", "code", "words"),
    [
        (in_order(OUT, [0, 2, 1]), "shard-order", "microbatches of the inputs, in the order 0, 2"),
        (in_order(OUT, [1, 2, 0]), "shard-order", "microbatches of the inputs, in the order 1, 2"),
        (from_cotangents([2, 0, 1]), "shard-order", "cotangents, in the order 2, 0, 1"),
        (kept(2), "gradient-dropped", "only the microbatches [2] of 3"),
        (kept(0, 1), "gradient-dropped", "only the microbatches [0, 1] of 3"),
        (times(DW, 1 / 3), "averaged-not-summed", "which has 3 microbatches"),
        (times(DW, 3), "summed-twice", "which has 3 microbatches"),
    ],
    ids=["swapped", "rotated", "cotangents", "last", "first two", "mean", "thrice"],
)
def test_what_became_of_the_microbatches_is_said(edit: Edit, code: str, words: str) -> None:
    named = examine(edit, spec=COLUMN, case=THREE)
    assert (named.code, words in named.message) == (code, True), named.message


def test_a_pass_that_is_used_twice_is_no_order() -> None:
    """The third output is the second's, and so is the second: nothing was exchanged."""
    assert examine(in_order(OUT, [0, 1, 1]), spec=COLUMN, case=THREE).code == "stale-buffer"


def test_of_a_tensor_inside_the_passes_are_not_compared() -> None:
    posed = pose(COLUMN, THREE)
    result = CaseResult(THREE, "gloo")
    facts = Facts(posed, result, result, {}, lambda case: None, COLUMN)
    for name, value in (("output", 2.0), ("layer|out", 2.0)):
        target = replace(posed.problems[0].targets[0], name=name)
        local = Local(target, THREE, [0], *({0: f * target.value} for f in (value, 1.0, 1e-9)))
        assert microbatches.reordered(facts, local) is None


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
    assert named.evidence["names"] == ["embed.weight", "head.weight"]
    named = tied(*halves(2))
    assert named.code == "wrong-group" and named.evidence["axis"] == "tp"
    assert "names" not in tied(*halves(1.7)).evidence


def structural(*found: Mismatch) -> diagnose.Diagnosis:
    result = CaseResult(STAGES, "gloo", list(found))
    facts = Facts(Posed(STAGES, [Problem()], {}, {}, {}), result, result, {}, lambda case: None)
    return diagnose.diagnose(facts)


def fault(tensor: str, rank: int, kind: str) -> Mismatch:
    detail = {"fault": kind, "reason": f"{tensor} is {kind}"}
    return Mismatch(tensor, "sharding", rank, detail=detail)


def test_a_parameter_of_another_stage_is_misplaced_and_one_of_none_is_missing() -> None:
    moved = [fault("a", 0, "missing"), fault("a", 2, "elsewhere")]
    assert structural(*moved).code == "wrong-placement"
    assert structural(*moved).message == "a is elsewhere"
    lost = structural(*moved, fault("b", 2, "missing"))
    assert (lost.code, lost.message) == ("plan-entry-unmatched", "b is missing")
    elsewhere = {"elsewhere": "is on the ranks of pp=0; the layout has it on those of pp=1 only"}
    early = structural(Mismatch("output", "output", 0, detail=elsewhere))
    assert early.code == "wrong-placement" and "pp=0" in early.message
