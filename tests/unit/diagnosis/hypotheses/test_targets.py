"""Hypotheses about which column of sharded logits is taken for a token's target."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.unit.diagnosis.edits import OUT, Edit, Ranks, change, examine
from tests.unit.diagnosis.hypotheses.test_losses import LOSS, REDUCTIONS, case
from tpcheck import Case, Layout, Shard, Spec, specs
from tpcheck.errors import counted
from tpcheck.oracle.pose import Posed
from tpcheck.placement import take

DLOGITS = "input_grad/logits"
SPEC = specs.cross_entropy()


def logits_of(posed: Posed, ids: Tensor) -> Tensor:
    logits: Tensor = posed.problems[0].inputs[0]["logits"]
    return logits.gather(-1, ids[..., None])[..., 0]


def taking(others: Tensor | int) -> Edit:
    """The targets of ids 3 and above are those `others` further, or at most the last."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        ids = posed.problems[0].inputs[0]["targets"]
        moved = torch.where(ids >= 4, (ids + others).clamp(4, 7), ids)
        off = logits_of(posed, ids) - logits_of(posed, moved)
        match posed.case["reduction"]:
            case "mean":
                off = off.mean()
            case "sum":
                off = off.sum()
        change(LOSS, lambda old, r: old[r] + off)(ranks, posed)

    return edit


@REDUCTIONS
@pytest.mark.parametrize("by", [1, -1, 2])
def test_a_loss_of_other_targets_is_named(reduction: str, by: int) -> None:
    named = examine(taking(by), spec=SPEC, case=case(reduction))
    assert (named.code, "other targets" in named.message) == ("vocab-mask", True)


@REDUCTIONS
def test_a_loss_of_no_target_is_not(reduction: str) -> None:
    noise = change(LOSS, lambda old, r: old[r] + 0.1234)
    assert examine(noise, spec=SPEC, case=case(reduction)).code == "unclassified"


def with_own_terms(rows: int, *, in_column: int, keep: bool, factor: float = 1.0) -> Edit:
    """The first `rows` tokens have the target's own term in another column of each rank that does
    not have it; of the rank that has it, where it belongs, or not (`keep`)."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        ids, upstream = problem.inputs[0]["targets"], problem.cotangents[0]["loss"]
        term = -factor * upstream.expand(ids.shape).flatten()
        numbers = torch.arange(8).expand(*ids.shape, 8)
        for rank, held in ranks.items():
            own = take(numbers, posed.inputs["logits"], case=posed.case, rank=rank)[0, 0]
            grad = held[DLOGITS].clone()
            flat = grad.view(-1, grad.shape[-1])
            for row, given in enumerate(ids.flatten().tolist()[:rows]):
                if given not in own:
                    flat[row, in_column] += term[row]
                elif not keep:
                    flat[row, own.tolist().index(given)] -= term[row]
            held[DLOGITS] = grad

    return edit


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("keep", [False, True])
def test_a_target_term_in_other_columns_is_named(rows: int, keep: bool) -> None:
    at = case("sum", tp=4)
    named = examine(with_own_terms(rows, in_column=1, keep=keep), spec=SPEC, case=at)
    assert (named.code, f"in {counted(rows, 'row')}" in named.message) == ("vocab-mask", True)


def test_another_number_in_other_columns_is_not() -> None:
    half = with_own_terms(4, in_column=1, keep=True, factor=0.5)
    assert examine(half, spec=SPEC, case=case("sum", tp=4)).code == "unclassified"


class Kept(nn.Module):
    """A column-parallel layer of whose tokens an input of 0 and 1 keeps some: no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 6, bias=False)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.up(x) * keep[..., None]


def test_what_is_not_a_loss_has_no_targets() -> None:
    at = Case(dims={"tokens": 5}, mesh={"tp": 2}, dtype="float64", seed=2)
    spec = Spec(
        name="kept",
        cases=[at],
        reference=lambda case: Kept(),
        inputs=lambda case, draw: {
            "x": draw("x", case["tokens"], 4),
            "keep": draw.integers("keep", 0, 2, case["tokens"]),
        },
        layout=lambda case: Layout(params={"up.weight": Shard(0)}, outputs={"output": Shard(-1)}),
    )

    def kept_all(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        full = problem.inputs[0]["x"].double() @ problem.params["up.weight"].double().T
        for rank, held in ranks.items():
            held[OUT] = take(full, posed.outputs["output"], case=at, rank=rank).clone()

    assert examine(kept_all, spec=spec, case=at).code != "vocab-mask"
