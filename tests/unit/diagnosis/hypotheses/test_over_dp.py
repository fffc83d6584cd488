"""Hypotheses about gradients that the spec combines over dp."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.unit.diagnosis.edits import (
    CASE,
    DB,
    DIMS,
    DW,
    ROW,
    Edit,
    Ranks,
    examine,
    times,
    traced,
)
from tpcheck.causes.several import (
    OwnDataOnly,
    PiecesOverWorld,
    ScaledOverData,
    SomeDataOnly,
    SummedOverData,
)
from tpcheck.causes.tensor import Scaled
from tpcheck.oracle.expected import evaluate
from tpcheck.oracle.pose import Posed
from tpcheck.placement import take
from tpcheck.tensors.names import Key

MEAN = replace(ROW, dp_gradients="mean")
FOUR = replace(CASE, mesh={"dp": 4, "tp": 1})
SQUARE = replace(CASE, mesh={"dp": 2, "tp": 2})
DP, TP, WORLD = [[0, 2], [1, 3]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]


def of_groups(*groups: list[int], divided_by: int, of: str = DW) -> Edit:
    """Each rank has the sum of what the data of its group's dp coordinates give, divided."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        local, key = replace(MEAN, dp_gradients="local"), Key.parse(of)
        own = [evaluate(local, posed.case, problem)[0][key] for problem in posed.problems]
        (target,) = (t for t in posed.problems[0].targets if (t.kind, t.name) == key)
        for rank, held in ranks.items():
            d = posed.case.dp_coordinate(rank)
            (group,) = (group for group in groups if d in group)
            total = torch.stack([own[i] for i in group]).sum(0) / divided_by
            held[of] = take(total, target.entry, case=posed.case, rank=rank)

    return edit


def everywhere(some: list[int], of: str = DW) -> Edit:
    """All ranks have the mean of what the data of the same dp coordinates give."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        rest = [d for d in range(posed.case.dp) if d not in some]
        of_groups(some, rest, divided_by=len(some), of=of)(ranks, posed)
        for held in ranks.values():
            held[of] = ranks[some[0]][of].clone()

    return edit


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("divided_by", [1, 2, 4])
@pytest.mark.parametrize("groups", [([0, 1], [2, 3]), ([0, 2], [1, 3])], ids=str)
def test_data_of_some_coordinates_alone(
    groups: tuple[list[int], ...], divided_by: int, tp: int
) -> None:
    case = replace(FOUR, mesh={"dp": 4, "tp": tp})
    named = examine(of_groups(*groups, divided_by=divided_by), spec=MEAN, case=case)
    assert isinstance(named.cause, SomeDataOnly), named
    assert (named.code, named.cause.coordinates) == ("partial-not-reduced", tuple(groups[0]))


@pytest.mark.parametrize("divided_by", [1, 4])
def test_data_of_each_coordinate_alone(divided_by: int) -> None:
    groups = [[d] for d in range(4)]
    named = examine(of_groups(*groups, divided_by=divided_by), spec=MEAN, case=FOUR)
    assert (named.code, type(named.cause)) == ("partial-not-reduced", OwnDataOnly)


def test_data_of_the_same_coordinates_on_all() -> None:
    for some in ([0], [0, 1, 2]):
        named = examine(everywhere(some), spec=MEAN, case=FOUR)
        assert isinstance(named.cause, SomeDataOnly), named
        assert named.cause.coordinates == tuple(some)


def test_what_is_so_on_one_coordinate_alone_is_not_said_of_all() -> None:
    """The first one has its own data's, the others something else."""
    named = examine(everywhere([0]), times(DW, 1.7, 1, 2, 3), spec=MEAN, case=FOUR)
    assert named.code == "unclassified", named


def test_data_of_groups_that_are_no_part_of_the_mesh_has_no_name() -> None:
    named = examine(of_groups([0, 3], [1, 2], divided_by=4), spec=MEAN, case=FOUR)
    assert named.code == "unclassified"


@pytest.mark.parametrize(
    ("factor", "code"),
    [(4.0, "summed-twice"), (2.0, "summed-twice"), (0.5, "averaged-not-summed")],
)
def test_a_sum_that_is_divided_by_another_number(factor: float, code: str) -> None:
    named = examine(times(DW, factor), spec=MEAN, case=FOUR)
    assert isinstance(named.cause, ScaledOverData) and named.code == code
    assert named.cause.factor == factor
    assert examine(times(DW, 3.0), spec=MEAN, case=FOUR).code == "unclassified"


def test_a_factor_of_tp_is_not_that_of_the_world() -> None:
    named = examine(times(DW, 2.0), spec=MEAN, case=replace(FOUR, mesh={"dp": 4, "tp": 2}))
    assert isinstance(named.cause, Scaled) and not named.cause.world
    assert named.message.endswith("every element is 2 × the reference")


@pytest.mark.parametrize(
    ("exchanged", "axes"),
    [([DP], ("dp",)), ([DP, TP], ("dp", "tp")), ([WORLD], ("dp", "tp")), ([], ("dp", "tp"))],
    ids=str,
)
def test_a_sum_too_many_is_along_an_axis_that_was_summed_over(
    exchanged: list[list[list[int]]], axes: tuple[str, ...]
) -> None:
    named = examine(times(DB, 2.0), spec=MEAN, case=SQUARE, trace=traced(*exchanged))
    assert isinstance(named.cause, ScaledOverData), named
    assert named.cause.axes == axes


def test_a_sum_over_tp_may_leave_a_multiple_of_what_is_cut_along_it() -> None:
    """That of the upstream gradient does."""
    both = times(DB, 2.0), times(DW, 2.0)
    named = examine(*both, spec=MEAN, case=SQUARE, trace=traced(DP, TP))
    assert isinstance(named.cause, ScaledOverData) and named.cause.axes == ("dp", "tp")


def test_a_division_may_be_by_the_size_of_any_axis() -> None:
    three = replace(CASE, mesh={"ep": 2, "dp": 2, "tp": 2})
    named = examine(times(DB, 0.5), spec=MEAN, case=three, trace=traced(DP))
    assert isinstance(named.cause, ScaledOverData) and named.cause.axes == ("dp", "ep", "tp")


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0])
def test_shards_that_are_summed_over_the_world(factor: float) -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        total = factor * (ranks[0][DW] + ranks[1][DW])
        for held in ranks.values():
            held[DW] = total.clone()

    named = examine(edit, spec=MEAN, case=SQUARE, trace=traced(WORLD))
    assert (named.code, type(named.cause)) == ("wrong-group", PiecesOverWorld)
    other = examine(edit, spec=MEAN, case=SQUARE, trace=traced(DP, TP))
    assert not isinstance(other.cause, PiecesOverWorld), other


@pytest.mark.parametrize("divided_by", [1, 2])
@pytest.mark.parametrize(("exchanged", "world"), [(DP, False), (WORLD, True)], ids=str)
def test_gradients_of_their_own_are_combined(
    exchanged: list[list[int]], world: bool, divided_by: int
) -> None:
    local, edit = replace(MEAN, dp_gradients="local"), of_groups([0, 1], divided_by=divided_by)
    named = examine(edit, spec=local, case=SQUARE, trace=traced(exchanged))
    assert isinstance(named.cause, SummedOverData), named
    assert (named.cause.mean, named.cause.world) == (divided_by == 2, world)
    silent = examine(edit, spec=local, case=SQUARE, trace=traced(TP))
    assert not isinstance(silent.cause, SummedOverData), silent


def test_what_few_elements_come_from_is_asked_of_all_that_are_wrong() -> None:
    """As the larger of two terms does, now and then."""
    few = replace(SQUARE, dims=DIMS | {"out_features": 2})
    of_first = everywhere([0], DB)
    assert isinstance(examine(of_first, spec=MEAN, case=few).cause, SomeDataOnly)
    both = examine(of_first, times(DW, 1.7), spec=MEAN, case=few)
    assert not isinstance(both.cause, SomeDataOnly), both
