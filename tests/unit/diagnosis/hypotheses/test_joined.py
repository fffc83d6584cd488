"""Hypotheses about what each rank adds whole to a sum over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.unit.diagnosis.edits import DX, OUT, Ranks, examine
from tpcheck import Layout, Shard, specs
from tpcheck.causes.several import ScaledBefore, UnsummedBefore
from tpcheck.causes.where import Subject
from tpcheck.oracle.pose import Posed
from tpcheck.vocabulary import Kind


def shares(key: str, *joined: str, keep: float = 1.0) -> Callable[[Ranks, Posed], None]:
    """Each rank has a share of its own of the tensor, and what every rank adds to it whole."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        numbers = {**problem.params, **problem.inputs[0], **problem.cotangents[0]}
        whole = torch.zeros_like(ranks[0][key])
        for name in joined:
            whole += numbers[name]
        for rank, held in ranks.items():
            held[key] = (rank + 1) / 10.0 * keep * (held[key] - whole) + whole  # of four: 1

    return edit


SQUARE = replace(
    specs.row_linear(), reference=lambda case: Square(case["in_features"]), name="square"
)


class Square(torch.nn.Linear):
    """Its input joins what it gives."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x


@pytest.mark.parametrize("joined", [("bias",), ("x",), ("bias", "x")])
def test_a_sum_that_is_missing_before_what_every_rank_adds(joined: tuple[str, ...]) -> None:
    spec = replace(SQUARE, layout=lambda case: Layout(params={"weight": Shard(1)}))
    named = examine(shares(OUT, *joined), spec=spec)
    assert named.code == "missing-all-reduce"
    assert named.cause == UnsummedBefore(Subject(Kind.OUTPUT, "output"), (0, 1, 2, 3), joined)
    assert examine(shares(OUT, *joined, keep=0.9), spec=spec).code != "missing-all-reduce"


def test_of_ranks_that_hold_the_same_no_sum_is_missing() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        for held in ranks.values():
            held[OUT] = (held[OUT] + 3 * posed.problems[0].params["bias"]) / 4

    spec = replace(SQUARE, layout=lambda case: Layout(params={"weight": Shard(1)}))
    assert examine(edit, spec=spec).code != "missing-all-reduce"


def test_in_backward_it_is_the_cotangent_that_every_rank_adds() -> None:
    spec = replace(SQUARE, layout=lambda case: Layout(params={"weight": Shard(1)}))
    named = examine(shares(DX, "output"), spec=spec)
    cause = UnsummedBefore(Subject(Kind.INPUT_GRAD, "x"), (0, 1, 2, 3), ("output",))
    assert (named.code, named.cause) == ("missing-all-reduce", cause)


@pytest.mark.parametrize("joined", [("bias",), ("x",), ("bias", "x")])
@pytest.mark.parametrize(("factor", "code"), [(4.0, "summed-twice"), (0.25, "averaged-not-summed")])
def test_all_but_what_every_rank_adds_is_a_multiple(
    joined: tuple[str, ...], factor: float, code: str
) -> None:
    def edit(times: float) -> Callable[[Ranks, Posed], None]:
        def of(ranks: Ranks, posed: Posed) -> None:
            problem = posed.problems[0]
            numbers = {**problem.params, **problem.inputs[0]}
            for held in ranks.values():
                whole = sum((numbers[n] for n in joined), torch.zeros_like(held[OUT]))
                held[OUT] = whole + times * (held[OUT] - whole)

        return of

    spec = replace(SQUARE, layout=lambda case: Layout(params={"weight": Shard(1)}))
    named = examine(edit(factor), spec=spec)
    cause = ScaledBefore(Subject(Kind.OUTPUT, "output"), factor, joined)
    assert (named.code, named.cause) == (code, cause)
    assert examine(edit(1.1 * factor), spec=spec).code != code
