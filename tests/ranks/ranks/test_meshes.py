"""Candidates over meshes of their own: what their axes are is known by their ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tpcheck import Case, Check, Layout, Plan, Shard, Spec
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict

ENTRIES = {"up": ColwiseParallel(), "down": RowwiseParallel()}
PLAN = Plan(ENTRIES, whole=("down.bias",))
CUT = {"up.weight": Shard(0), "up.bias": Shard(0), "down.weight": Shard(1)}
MESH = {"dp": 2, "tp": 2}


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.relu(self.up(x)))
        return y


def named(case: Case) -> DeviceMesh:
    return init_device_mesh("cpu", tuple(case.mesh.values()), mesh_dim_names=("copies", "model"))


def of_a_group(case: Case, mesh: DeviceMesh) -> DeviceMesh:
    group: Any = mesh["tp"].get_group()
    return DeviceMesh.from_group(group, "cpu", mesh_dim_names=("model",))


def run(engine: Engine, build: Any, mesh: dict[str, int], **about: Any) -> CaseResult:
    plan = about.pop("plan", None)
    spec = Spec(
        "pair",
        lambda space: None,
        lambda case: Pair(),
        lambda case, draw: {"x": draw("x", 3, 4)},
        **{"layout": lambda case: Layout(params=CUT), **about},
    )
    return Runner(Check(spec, build, plan=plan), engine).run(Case(mesh=mesh, dtype="float64"))


PLANNED = {
    "named": lambda case, mesh: parallelize_module(Pair(), named(case)["model"], ENTRIES),
    "of a group": lambda case, mesh: parallelize_module(Pair(), of_a_group(case, mesh), ENTRIES),
}


@pytest.mark.parametrize("build", PLANNED.values(), ids=PLANNED)
@pytest.mark.parametrize(
    "mesh",
    [MESH, pytest.param({"dp": 1, "tp": 2}, marks=pytest.mark.sweep), {"dp": 2, "tp": 1}],
)
def test_its_plan_is_kept(gloo: Engine, build: Any, mesh: dict[str, int]) -> None:
    found = run(gloo, build, mesh, plan=PLAN)
    assert found.verdict is Verdict.PASS, found.mismatches


def test_a_plan_over_another_axis_is_not_kept(gloo: Engine) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        return parallelize_module(Pair(), named(case)["copies"], ENTRIES)

    found = run(gloo, build, MESH, plan=PLAN, layout=lambda case: Layout())
    assert {m.tensor for m in found.causes} >= {"up.weight", "down.weight"}


def test_what_is_wrapped_after_the_plan_is_in_order(gloo: Engine) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        own = named(case)
        module: Any = parallelize_module(Pair(), own["model"], ENTRIES)
        module.up = checkpoint_wrapper(module.up)
        return fully_shard(module, mesh=own["copies"])

    cut = {name: {"tp": place, "dp": Shard(0)} for name, place in CUT.items()}
    whole = {**cut, "down.bias": {"dp": Shard(0)}}
    for plan in (None, PLAN):
        about: dict[str, Any] = {"layout": lambda case: Layout(params=whole), "plan": plan}
        found = run(gloo, build, MESH, dp_gradients="mean", **about)
        assert found.verdict is Verdict.PASS, found.mismatches


def test_what_is_wrapped_before_the_plan_is_not(gloo: Engine) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        module = Pair()
        module.up = checkpoint_wrapper(module.up)
        return parallelize_module(module, named(case)["model"], {"down": RowwiseParallel()})

    found = run(gloo, build, MESH)
    assert "order-of-parallelisms" in {getattr(m.detail, "code", "") for m in found.causes}
