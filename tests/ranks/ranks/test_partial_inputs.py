"""Inputs of which each rank is given a term."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, InvalidArgument, Layout, Partial, Shard, Spec
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

CASE = Case(mesh={"tp": 2}, dtype="bfloat16", microbatches=2)


class Sum(torch.autograd.Function):
    """Forward: the sum over the ranks. Backward: the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


class ReduceScatter(torch.autograd.Function):
    """Forward: this rank's rows of the sum. Backward: all ranks' rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        own = x.new_empty(x.shape[0] // 2, *x.shape[1:])
        dist.reduce_scatter_tensor(own, x.contiguous())
        return own

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        whole = grad.new_empty(2 * grad.shape[0], *grad.shape[1:])
        dist.all_gather_into_tensor(whole, grad.contiguous())
        return whole


def check(function: Any, layout: Layout) -> Check:
    spec = Spec(
        "terms",
        lambda space: None,
        lambda case: torch.clone,
        lambda case, draw: {"x": draw("x", 4, 3)},
        lambda case: layout,
    )
    return Check(spec, lambda case, mesh: function)


WHOLE = Layout(inputs={"x": Partial()})
ROWS = Layout(inputs={"x": Partial()}, outputs={"output": Shard(0)})


@pytest.mark.parametrize(("function", "layout"), [(Sum.apply, WHOLE), (ReduceScatter.apply, ROWS)])
def test_a_sum_of_them_is_right(gloo: Engine, function: Any, layout: Layout) -> None:
    found = Runner(check(function, layout), gloo).run(CASE)
    assert found.verdict is Verdict.PASS, found.mismatches


def test_one_that_is_forgotten_is_missing(gloo: Engine) -> None:
    """Each rank had the whole input, so that nothing was."""
    found = examined(check(torch.clone, WHOLE), CASE, gloo)
    assert found.diagnosis.code == "missing-all-reduce"


def test_no_parameter_is_one(gloo: Engine) -> None:
    spec = Spec(
        "linear",
        lambda space: None,
        lambda case: torch.nn.Linear(3, 2),
        lambda case, draw: {"x": draw("x", 4, 3)},
        lambda case: Layout({"weight": Partial()}),
    )
    one = Check(spec, lambda case, mesh: torch.nn.Linear(3, 2))
    with pytest.raises(InvalidArgument, match="no rank holds a term of a parameter"):
        Runner(one, gloo).run(CASE)
