"""Hypotheses about the statistics of which a loss of sharded logits is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import Edit, Ranks, examine
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.oracle.pose import Posed
from tpcheck.placement import take
from tpcheck.spec import Spec

LOSS = "loss/loss"
Each = Callable[[Tensor, Tensor], Tensor]  # all logits [B, S, W], a rank's own → [B, S]


def lse(logits: Tensor) -> Tensor:
    return logits.logsumexp(-1)


def case(reduction: str, *, tp: int = 2, **dims: Any) -> Case:
    ordinary = {"batch": 2, "seq": 3, "vocab": 8, "width": 8, "ignored": False}
    dims = {**ordinary, "label_smoothing": 0.0, "z_loss": 0.0, "reduction": reduction, **dims}
    return Case(dims=dims, mesh={"tp": tp}, seed=5)


def off_by(each: Each) -> Edit:
    """The loss of each token is off by `each(…)`, reduced as the case's is."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        logits, counted = problem.inputs[0]["logits"], problem.inputs[0]["targets"] >= 0
        for rank, held in ranks.items():
            own = take(logits, posed.inputs["logits"], case=posed.case, rank=rank)
            off = each(logits, own) * counted
            match posed.case["reduction"]:
                case "mean":
                    off = off.sum() / counted.sum()
                case "sum":
                    off = off.sum()
            held[LOSS] = held[LOSS] + off

    return edit


REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "sum", "mean"])


@REDUCTIONS
@pytest.mark.parametrize("ignored", [False, True])
def test_a_statistic_of_the_own_columns_is_one_that_was_not_reduced(
    reduction: str, ignored: bool
) -> None:
    spec, at = specs.cross_entropy(), case(reduction, ignored=ignored)
    exponentials = examine(off_by(lambda all_, own: lse(own) - lse(all_)), spec=spec, case=at)
    assert (exponentials.code, "the sum of exponentials" in exponentials.message) == (
        "missing-all-reduce",
        True,
    )
    added = examine(off_by(lambda all_, own: 0.1 * (own - all_.mean()).sum(-1)), spec=spec, case=at)
    assert added.code != "missing-all-reduce"  # something is added that is not what others have
    others = off_by(lambda all_, own: 0.1 * (all_.sum(-1) - own.sum(-1)))
    assert "the sum of logits" in examine(others, spec=spec, case=at).message
    largest = off_by(lambda all_, own: own.amax(-1) + 0.3)
    named = examine(largest, spec=spec, case=at)
    assert (named.code, "the largest logit" in named.message) == ("missing-all-reduce", True)


@REDUCTIONS
def test_smoothing_and_z_loss_over_the_own_columns_are_named(reduction: str) -> None:
    spec, at = specs.cross_entropy(), case(reduction)
    smoothed = off_by(lambda all_, own: -0.1 * (own.mean(-1) - all_.mean(-1)))
    named = examine(smoothed, spec=spec, case=at)
    assert (named.code, "the mean of logits" in named.message) == ("missing-all-reduce", True)
    z_loss = off_by(lambda all_, own: 0.01 * (lse(own).square() - lse(all_).square()))
    named = examine(z_loss, spec=spec, case=at)
    assert (named.code, "a z-loss" in named.message) == ("missing-all-reduce", True)


@REDUCTIONS
def test_what_another_statistic_leaves_is_not_named(reduction: str) -> None:
    spec, at = specs.cross_entropy(), case(reduction, tp=4)
    for each in (
        lambda all_, own: own.square().sum(-1),
        lambda all_, own: own.amin(-1) + 0.3,
        lambda all_, own: 2 * (lse(own) - lse(all_)),
        lambda all_, own: 0.1 * (own.mean(-1) - all_.mean(-1)),
        lambda all_, own: 0.01 * (lse(all_).square() - lse(own).square()),
    ):
        assert examine(off_by(each), spec=spec, case=at).code == "unclassified"


@REDUCTIONS
def test_log_of_the_degree_too_many_is_a_sum_taken_twice(reduction: str) -> None:
    spec, at = specs.cross_entropy(), case(reduction, tp=4)
    degree = off_by(lambda all_, own: torch.full(all_.shape[:-1], 4.0).double().log())
    other = off_by(lambda all_, own: torch.full(all_.shape[:-1], 3.0).double().log())
    assert examine(degree, spec=spec, case=at).code == "summed-twice"
    assert examine(other, spec=spec, case=at).code == "unclassified"


@REDUCTIONS
def test_columns_of_no_id_are_named_where_there_are_any(reduction: str) -> None:
    spec: Spec = specs.cross_entropy(padded=True)
    padding = off_by(lambda all_, own: lse(all_) - lse(all_[..., :6]))
    some = examine(padding, spec=spec, case=case(reduction, vocab=6))
    none = examine(padding, spec=spec, case=case(reduction))
    assert (some.code, "2 columns" in some.message) == ("vocab-mask", True)
    assert none.code == "unclassified"


@REDUCTIONS
def test_logits_that_are_no_input_are_an_input_times_a_sharded_weight(reduction: str) -> None:
    dims = {"batch": 2, "seq": 3, "hidden": 4, "vocab": 7, "chunks": 2, "ignored": False}
    dims |= {"label_smoothing": 0.0, "z_loss": 0.0, "reduction": reduction}
    at, spec = Case(dims=dims, mesh={"tp": 2}, seed=5), specs.linear_cross_entropy()

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        weight = problem.params["weight"]
        for rank, held in ranks.items():
            own = take(weight, posed.params["weight"], case=posed.case, rank=rank)
            x = problem.inputs[0]["x"]
            off = lse(x @ own.T) - lse(x @ weight.T)
            total = {"none": off, "sum": off.sum(), "mean": off.mean()}[reduction]
            held[LOSS] = held[LOSS] + total

    named = examine(edit, spec=spec, case=at)
    assert (named.code, "the sum of exponentials" in named.message) == ("missing-all-reduce", True)


@pytest.mark.parametrize(
    ("edited", "code"),
    [
        (("loss/", "input_grad/"), "averaged-not-summed"),
        (("loss/",), "unclassified"),  # the gradients follow from the loss
    ],
)
def test_a_mean_over_all_tokens(edited: tuple[str, ...], code: str) -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        targets = posed.problems[0].inputs[0]["targets"]
        counted = int((targets >= 0).sum())
        assert (counted, targets.numel()) == (5, 6)
        for held in ranks.values():
            for key in held:
                if key.startswith(edited):
                    held[key] = held[key] * (counted / targets.numel())

    named = examine(edit, spec=specs.cross_entropy(), case=case("mean", tp=4, ignored=True))
    assert named.code == code, named
    assert ("all 6 tokens of targets, of which 5 count" in named.message) == (
        code != "unclassified"
    )
