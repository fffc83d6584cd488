"""Gradients that data-parallel ranks are to average, and make something else of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from fixtures.parallel.zero import averaged, data_group, data_parallel
from properties import mlp
from properties.training import momentum, trained
from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Training
from tpcheck.engines.engine import Engine

SIZES = {"batch": 1, "seq": 2, "hidden": 5, "intermediate": 4}
CASE = Case(
    dims=SIZES | {"activation": "gelu", "norm": "none", "residual": False, "bias": False},
    mesh={"dp": 2, "tp": 2},
    dtype="float64",
)

#: (module, mesh): what is made of gradients after backward.
Finalize = Callable[[nn.Module, Any], None]


def over_data(change: Callable[[torch.Tensor, Any], None]) -> Finalize:
    """`change(gradient, group)` of each gradient, where there is a group of ranks of other data."""

    def finalize(module: nn.Module, mesh: Any) -> None:
        if (group := data_group(mesh)) is not None:
            for parameter in module.parameters():
                assert parameter.grad is not None
                change(parameter.grad, group)

    return finalize


def but_the_last_element(gradient: torch.Tensor, group: Any) -> None:
    shared = gradient.view(-1)[:-1].clone()
    dist.all_reduce(shared, group=group)
    gradient.view(-1)[:-1] = shared / group.size()


def in_bfloat16(gradient: torch.Tensor, group: Any) -> None:
    low = gradient.to(torch.bfloat16)
    dist.all_reduce(low, group=group)
    gradient.copy_(low / group.size())


def largest(gradient: torch.Tensor, group: Any) -> None:
    dist.all_reduce(gradient, dist.ReduceOp.MAX, group=group)


def in_the_first_step_alone(module: nn.Module, mesh: Any) -> None:
    steps = vars(module)["steps"] = vars(module).get("steps", 0) + 1
    if steps == 1:
        averaged(module, mesh)


def over_tp(module: nn.Module, mesh: Any) -> None:
    if data_group(mesh) is not None:
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad, group=mesh["tp"].get_group())


def but_one(module: nn.Module, mesh: Any) -> None:
    kept = module.get_parameter("down.weight").grad
    assert kept is not None
    own = kept.clone()
    averaged(module, mesh)
    kept.copy_(own)


def summed(gradient: torch.Tensor, group: Any) -> None:
    dist.all_reduce(gradient, group=group)


LEFT = "down.weight after backward; what the ranks have adds up to what is right, and finalize"
TERMS = " after finalize; what backward left on the ranks adds up to what is right"


@pytest.mark.parametrize(("finalize", "words"), [(but_one, LEFT), (over_data(summed), TERMS)])
def test_what_finalize_leaves_is_no_module_s(gloo: Engine, finalize: Finalize, words: str) -> None:
    spec = replace(data_parallel(mlp.mlp.spec), finalize=finalize)
    found = examined(replace(mlp.mlp, spec=spec, overrides={}), CASE, gloo)
    assert words in str(found.first_divergence)


@pytest.mark.parametrize(
    ("finalize", "code"),
    [
        (in_the_first_step_alone, "partial-not-reduced"),
        (over_tp, "wrong-group"),
        (over_data(in_bfloat16), "precision-loss"),
        (over_data(largest), "unclassified"),
        (over_data(but_the_last_element), "unclassified"),
    ],
    ids=["first_step_alone", "over_tp", "in_bfloat16", "largest", "but_the_last_element"],
)
def test_the_group_is_wrong_where_nothing_goes_over_it(
    gloo: Engine, finalize: Finalize, code: str
) -> None:
    spec = replace(data_parallel(mlp.mlp.spec), finalize=finalize)
    check = trained(replace(mlp.mlp, spec=spec), Training(momentum, steps=2))
    assert examined(check, CASE, gloo).diagnosis.code == code
