"""Hypotheses tested on the reference under altered numbers: each fits what it says, and is refuted
by what differs in the one point that it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import CASE, DIMS, OUT, Edit, Ranks, examine
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.causes.altered import AlongDim, OwnPartOnly, Regathered, Regrouped, RowsMixed
from tpcheck.causes.where import Side, Subject
from tpcheck.diagnosis.hypotheses.altered import _regrouped
from tpcheck.layout import Layout
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Shard
from tpcheck.spec import Spec
from tpcheck.vocabulary import Kind

ROWS = Case(dims={"rows": 6, "columns": 3}, mesh={"cp": 2, "tp": 2}, seed=4)


def mixes(x: Tensor) -> Tensor:
    """Each row takes something of the rows before it, as causal attention does."""
    return x.tanh() * x.abs().cumsum(0)


CUT = Spec(
    name="rows",
    cases=[ROWS],
    reference=lambda case: mixes,
    inputs=lambda case, draw: {"x": draw("x", case["rows"], case["columns"])},
    layout=lambda case: Layout(
        inputs={"x": {"cp": Shard(0)}}, outputs={"output": {"cp": Shard(0)}}
    ),
)


def outputs(of: Callable[[Tensor, int], Tensor]) -> Edit:
    """Each rank's output, of the full input."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        for rank, held in ranks.items():
            held[OUT] = of(posed.problems[0].inputs[0]["x"], rank)

    return edit


def test_an_output_of_the_own_part_alone_lacks_what_others_hold() -> None:
    def own(x: Tensor, rank: int) -> Tensor:
        return mixes(x.chunk(2)[rank // 2])

    named = examine(outputs(own), spec=CUT, case=ROWS)
    assert named.code == "missing-all-reduce"
    # the first part is right as it is
    assert named.cause == OwnPartOnly(Subject(Kind.OUTPUT, "output"), (2, 3), ("x",))
    another = examine(outputs(lambda x, r: own(x + 0.1, r)), spec=CUT, case=ROWS)
    assert another.code == "unclassified"


WEIGHTS = replace(CASE, dims=DIMS | {"bias": False})


def with_columns(order: list[int]) -> Edit:
    """The output of the weight's columns in another order; the inputs stay where they are."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        for held in ranks.values():
            held[OUT] = problem.inputs[0]["x"] @ problem.params["weight"][:, order].T

    return edit


def test_a_weight_whose_pieces_stand_in_another_order_names_the_order() -> None:
    named = examine(with_columns([0, 2, 1, 3, 4, 6, 5, 7]), case=WEIGHTS)
    assert named.code == "shard-order"
    order = (0, 2, 1, 3, 4, 6, 5, 7)
    assert named.cause == Regrouped(Subject(Kind.OUTPUT, "output"), "weight", 1, (2, 2), order)
    assert examine(with_columns([7, 2, 1, 3, 4, 0, 6, 5]), case=WEIGHTS).code == "unclassified"


class Gated(torch.nn.Linear):
    """One half of what it computes times the other."""

    def __init__(self) -> None:
        super().__init__(3, 8)

    def forward(self, x: Tensor) -> Tensor:
        return gated(x, self.weight, self.bias)


def gated(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    gate, up = torch.nn.functional.linear(x, weight, bias).chunk(2, -1)
    return gate * up


GATED = Spec(
    name="gated",
    cases=[CASE],
    reference=lambda case: Gated(),
    inputs=lambda case, draw: {"x": draw("x", 2, 3)},
    layout=lambda case: Layout(params={"*": Shard(0)}),
)


@pytest.mark.parametrize("moved", [("weight", "bias"), ("weight",), ("bias",)])
def test_a_bias_stands_in_the_other_order_with_its_weight(moved: tuple[str, ...]) -> None:
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # [4, 2] as [2, 4]

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        own = {n: p[order] if n in moved else p for n, p in problem.params.items()}
        for held in ranks.values():
            held[OUT] = gated(problem.inputs[0]["x"], **own)

    named = examine(edit, spec=GATED, case=replace(CASE, dims={}))
    cause = Regrouped(Subject(Kind.OUTPUT, "output"), moved[0], 0, (4, 2), tuple(order.tolist()))
    assert (named.code, named.cause) == ("shard-order", cause)


def test_every_regrouping_is_another_order_of_all_of_the_dim() -> None:
    found = [order for _, order in _regrouped(12)]
    assert all(sorted(order) == list(range(12)) and order != list(range(12)) for order in found)
    assert [0, 2, 1, 3] in [order for _, order in _regrouped(4)]
    assert list(_regrouped(7)) == [] and list(_regrouped(128)) == []  # a prime; too long


def rows_alike(posed: Posed) -> bool:
    x = posed.problems[0].inputs[0]["x"]
    return bool((x == x[:, :1]).all())


def partners(x: Tensor, posed: Posed) -> Tensor:
    """Half of the row's own result, half of the row's after it."""
    y = x @ posed.problems[0].params["weight"].T
    return 0.5 * (y + y.roll(1, 1))


def rows_of_partners(ranks: Ranks, posed: Posed) -> None:
    for held in ranks.values():
        held[OUT] = partners(posed.problems[0].inputs[0]["x"], posed)


def test_rows_that_are_right_only_where_all_are_alike_meet_other_rows() -> None:
    named = examine(rows_of_partners, case=WEIGHTS, right_posed=rows_alike)
    mixed = RowsMixed(Subject(Kind.OUTPUT, "output"), "x", 1)
    assert (named.code, named.cause) == ("shard-order", mixed)
    assert examine(rows_of_partners, case=WEIGHTS).code == "unclassified"


def test_a_row_that_is_wrong_by_itself_meets_no_other() -> None:
    """Right where all rows are the first, wrong where all are the one that is wrong."""

    def wrong_last(ranks: Ranks, posed: Posed) -> None:
        for held in ranks.values():
            held[OUT] = held[OUT].clone()
            held[OUT][:, -1] *= 3

    def first_alone(posed: Posed) -> bool:
        x = posed.problems[0].inputs[0]["x"]
        last = REAL[0].problems[0].inputs[0]["x"][:, -1:]
        return bool((x == x[:, :1]).all()) and not bool((x == last).all())

    REAL: list[Posed] = []

    def remembered(ranks: Ranks, posed: Posed) -> None:
        REAL.append(posed)
        wrong_last(ranks, posed)

    named = examine(remembered, case=WEIGHTS, right_posed=first_alone)
    assert named.code == "unclassified"


@pytest.mark.parametrize("alike", [True, False])
def test_where_the_reference_mixes_rows_that_says_nothing(alike: bool) -> None:
    wrong = outputs(lambda x, r: torch.cos(x.chunk(2)[r // 2]))
    named = examine(wrong, spec=CUT, case=ROWS, right_posed=lambda posed: alike)
    assert named.code == "unclassified"


def test_parts_gathered_along_another_dim_are_an_order() -> None:
    case = replace(CASE, dims=DIMS | {"batch": 4, "seq": 4, "bias": False})

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x = torch.cat(problem.inputs[0]["x"].chunk(4, 1), 0).reshape(4, 4, 8)
        for rank, held in ranks.items():
            held[OUT] = x @ problem.params["weight"].chunk(4, 0)[rank].T

    named = examine(edit, spec=specs.column_linear(sequence_parallel=True), case=case)
    assert named.code == "shard-order"
    along = AlongDim(0, instead_of=1)
    assert named.cause == Regathered(Subject(Kind.OUTPUT, "output"), Side.INPUT, "x", along)
