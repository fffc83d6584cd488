"""A candidate under DDP: its names, its gradients, and what a conversion does to its hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from fixtures.compositions import replicated
from fixtures.parallel.zero import data_group
from tpcheck import Case, Check
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

DIMS = {"batch": 2, "seq": 3, "hidden": 4, "intermediate": 6, "activation": "swiglu"}
DIMS |= {"norm": "rms", "residual": True, "bias": True}
CASE = Case(dims=DIMS, mesh={"dp": 2, "tp": 2}, dtype="float64", microbatches=2, step=True)

Build = Callable[[Case, DeviceMesh], nn.Module]


def run(gloo: Engine, build: Build, case: Case = CASE) -> CaseResult:
    return Runner(Check(replicated.spec, build), gloo).run(case)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_ddp_around_tp_is_right(gloo: Engine, dtype: str) -> None:
    result = run(gloo, replicated.candidate, replace(CASE, dtype=dtype))
    assert result.verdict is Verdict.PASS, result.mismatches


class Alone(DistributedDataParallel):
    """Gradients stay each replica's own."""

    def forward(self, *inputs: Any) -> Any:
        with self.no_sync():
            return super().forward(*inputs)


def alone(case: Case, mesh: DeviceMesh) -> nn.Module:
    model = replicated.tensor_parallel(case, mesh)
    return Alone(model, process_group=data_group(mesh))


def test_a_mean_that_ddp_does_not_take_is_seen(gloo: Engine) -> None:
    result = run(gloo, alone, replace(CASE, dtype="float32"))
    assert {m.kind for m in result.mismatches} >= {Kind.PARAM_GRAD}
    assert "up.weight" in {m.tensor for m in result.mismatches}


def unconverted(case: Case, mesh: DeviceMesh) -> nn.Module:
    model = replicated.tensor_parallel(case, mesh)
    return DistributedDataParallel(model, process_group=data_group(mesh))


def by_hand(case: Case, mesh: DeviceMesh) -> nn.Module:
    """Hooks as Megatron's DDP has them: on the node that accumulates a gradient."""
    model, group = replicated.tensor_parallel(case, mesh), data_group(mesh)

    def averaged(parameter: nn.Parameter, *_: object) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= 2

    model.nodes = []  # type: ignore[assignment]
    for parameter in model.parameters():
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        node.register_hook(lambda *_, p=parameter: averaged(p))  # type: ignore[union-attr]
        model.nodes.append(node)  # type: ignore[operator,union-attr]
    return model


@pytest.mark.parametrize("build", [unconverted, by_hand])
def test_hooks_that_a_conversion_loses_are_told(gloo: Engine, build: Build) -> None:
    once = replace(CASE, microbatches=1)
    assert run(gloo, build, replace(once, dtype="float32")).verdict is Verdict.PASS
    (first, *_) = run(gloo, build, once).mismatches
    assert first.kind is Kind.EXCEPTION
    assert "weight is float32 where the case is float64" in str(first.detail)
    assert ".to(getattr(torch, case.dtype))" in str(first.detail)


def kept_graph(case: Case, mesh: DeviceMesh) -> nn.Module:
    """It keeps a graph over its parameters from when it was built, as weight norm does; no hook."""
    model = replicated.tensor_parallel(case, mesh)
    model.norms = [p.square().sum() for p in model.parameters()]  # type: ignore[assignment]
    return model


def test_a_graph_over_parameters_is_no_hook(gloo: Engine) -> None:
    spec = replace(replicated.spec, dp_gradients="local")
    assert Runner(Check(spec, kept_graph), gloo).run(CASE).verdict is Verdict.PASS


@pytest.mark.parametrize("outside", [True, pytest.param(False, marks=pytest.mark.sweep)])
def test_one_that_is_compiled(gloo: Engine, outside: bool) -> None:
    """While torch splits the graph by DDP's buckets it runs collectives on tensors that have no
    memory: they are no events of the candidate's."""

    def build(case: Case, mesh: DeviceMesh) -> Any:
        model: Any = replicated.tensor_parallel(case, mesh)
        model = model.to(getattr(torch, case.dtype))
        if not outside:
            model = torch.compile(model, backend="aot_eager")
        model = DistributedDataParallel(model, process_group=data_group(mesh))
        return torch.compile(model, backend="eager") if outside else model

    result = run(gloo, build, replace(CASE, dtype="float32"))
    assert result.verdict is Verdict.PASS, result.mismatches
