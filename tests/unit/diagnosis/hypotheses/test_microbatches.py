"""Hypotheses about microbatches: in another order, left out, counted more than once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.diagnosis.edits import CASE, COLUMN, DB, DW, OUT, ROW, Edit, Ranks, examine, times
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses import microbatches
from tpcheck.oracle.expected import evaluate
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import take
from tpcheck.protocol.problem import Problem
from tpcheck.verdict import CaseResult

THREE = replace(CASE, mesh={"tp": 2}, microbatches=3)


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
        for problem in posed.problems:
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
    values = evaluate(COLUMN, posed.case, problem)[0]
    for target in posed.problems[0].targets:
        if target.kind.is_gradient and (not kinds or target.kind in kinds):
            for rank, held in ranks.items():
                if posed.case.dp_coordinate(rank) != problem.d:
                    continue
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


@pytest.mark.parametrize("tp", [1, 2])
def test_an_order_is_found_where_dp_coordinates_have_data_of_their_own(tp: int) -> None:
    case = replace(THREE, mesh={"dp": 2, "tp": tp})
    for edit in (in_order(OUT, [0, 2, 1]), from_cotangents([2, 0, 1])):
        assert examine(edit, spec=COLUMN, case=case).code == "shard-order"


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


def test_only_the_first_microbatch_summed_is_not_reduced() -> None:
    case = replace(CASE, microbatches=2)
    first = {(t.kind, t.name): t.value for t in pose(ROW, CASE).problems[0].targets}

    def edit(ranks: Ranks, posed: Posed) -> None:
        for rank, held in ranks.items():
            one = first["param_grad", "bias"]
            held[DB] = one + (rank + 1) / 10.0 * (held[DB] - one)

    assert examine(edit, case=case).code == "partial-not-reduced"
