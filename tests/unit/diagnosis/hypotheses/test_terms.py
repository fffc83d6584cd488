"""Hypotheses about sums of which some terms are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.diagnosis.edits import CASE, DIMS, DW, OUT, ROW, Edit, Ranks, examine
from tpcheck import specs
from tpcheck.causes.terms import SomeTermsOnly
from tpcheck.diagnosis.facts import Local
from tpcheck.diagnosis.hypotheses.terms import MOST_TERMS
from tpcheck.oracle.pose import Posed
from tpcheck.verdict import Diagnosis

SP = replace(CASE, dims=DIMS | {"batch": 4, "seq": 4, "bias": False})

COLUMN_SP, ROW_SP = (
    make(sequence_parallel=True) for make in (specs.column_linear, specs.row_linear)
)


def kept(named: Diagnosis) -> tuple[Any, int]:
    assert isinstance(named.cause, SomeTermsOnly)
    return named.cause.kept, named.cause.of


def weight_gradient(positions: Callable[[int], list[int]]) -> Edit:
    """dw from the positions (along the sequence) that each rank takes."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, dy = problem.inputs[0]["x"], problem.cotangents[0]["output"]
        for rank, held in ranks.items():
            at = positions(rank)
            dw = dy[:, at].flatten(0, 1).T @ x[:, at].flatten(0, 1)
            held[DW] = dw.chunk(4, 1)[rank]

    return edit


def test_positions_that_do_not_count_are_dropped_and_own_ones_are_not_reduced() -> None:
    dropped = examine(weight_gradient(lambda rank: [1, 3]), spec=ROW_SP, case=SP)
    assert dropped.code == "gradient-dropped"
    assert kept(dropped) == ({rank: (1, 3) for rank in range(4)}, 4)
    own = examine(weight_gradient(lambda rank: [rank]), spec=ROW_SP, case=SP)
    assert own.code == "partial-not-reduced"
    twice = examine(weight_gradient(lambda rank: [0, 1, 2, 3, 3]), spec=ROW_SP, case=SP)
    assert twice.code == "unclassified"


def test_input_features_that_no_rank_covers_are_an_order() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, w = problem.inputs[0]["x"][..., :-1], problem.params["weight"][:, :-1]
        for held in ranks.values():
            held[OUT] = x @ w.T

    case = replace(CASE, dims=DIMS | {"bias": False})
    named = examine(edit, spec=ROW, case=case)
    assert (named.code, kept(named)[0][0]) == ("shard-order", tuple(range(7)))


def test_one_rank_s_term_in_the_place_of_the_sum_is_a_missing_all_reduce() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, w = problem.inputs[0]["x"][..., 2:4], problem.params["weight"][:, 2:4]
        for held in ranks.values():
            held[OUT] = x @ w.T

    named = examine(edit, spec=ROW, case=replace(CASE, dims=DIMS | {"bias": False}))
    assert (named.code, kept(named)[0][3]) == ("missing-all-reduce", (2, 3))


def test_of_a_thousand_choices_few_are_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element of a rank's part is wrong: no choice of ten tokens gives that."""
    compared = []
    fits = Local.fits

    def counting(self: Local, *args: Any, **named: Any) -> bool:
        compared.append(args)
        return fits(self, *args, **named)

    def edit(ranks: Ranks, posed: Posed) -> None:
        ranks[3][DW][-1, -1] *= 2

    case = replace(CASE, dims=DIMS | {"batch": 1, "seq": MOST_TERMS})
    monkeypatch.setattr(Local, "fits", counting)
    assert examine(edit, case=case).code == "unclassified"
    assert len(compared) < 2**MOST_TERMS / 4
