"""Candidates whose parameters are DTensors: hooks on their gradients, scaled losses, and FSDP2 over
axes that are made of the case's."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor import Replicate as Whole
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests.ranks.diagnosis.test_examine import examined
from tpcheck import Case, Check, Layout, Norm, Replicate, Scaling, Shard, Spec, Training
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Kind

SIZES = {"batch": 2, "seq": 2, "width": 4}


class Normed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        own = self.weight.to_local() if isinstance(self.weight, DTensor) else self.weight
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * own
        y: Tensor = self.down(torch.relu(self.up(x)))
        return y


TP = {"up.weight": Shard(0), "up.bias": Shard(0), "down.weight": Shard(1), "weight": Replicate()}


def spec(**more: Any) -> Spec:
    about: dict[str, Any] = {"layout": lambda case: Layout(params=TP), **more}
    return Spec(
        "normed",
        lambda space: None,
        lambda case: Normed(case["width"]),
        lambda case, draw: {"x": draw("x", case["batch"], case["seq"], case["width"])},
        **about,
    )


def result(engine: Engine, of: Spec, build: Any, mesh: dict[str, int], **more: Any) -> CaseResult:
    case = Case(SIZES, mesh=mesh, dtype=more.pop("dtype", "float64"))
    return Runner(Check(of, build, **more), engine).run(case)


# ---- hooks


def planned(case: Case, mesh: DeviceMesh, *, early: bool) -> nn.Module:
    module = Normed(case["width"])
    if early:  # before the hooks are there
        module = module.to(getattr(torch, case.dtype))
    return parallelize_module(
        module, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )


def doubled(gradient: Tensor) -> Tensor:
    return gradient * 2


def doubles(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad *= 2


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("how", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_their_gradients_run(gloo: Engine, how: str, early: bool) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        module = planned(case, mesh, early=early)
        of_gradient = how == "register_hook"
        getattr(module.up.weight, how)(doubled if of_gradient else doubles)
        return module

    found = result(gloo, spec(), build, {"tp": 2})
    wrong = {(m.kind, m.tensor) for m in found.mismatches}
    assert wrong == {(Kind.PARAM_GRAD, "up.weight")}


@pytest.mark.parametrize("early", [True, False])
def test_a_right_hook_is_left_alone(gloo: Engine, early: bool) -> None:
    """Of a norm between shards of the sequence: its weight is whole on each rank."""

    def summed(gradient: Any) -> DTensor:
        own, mesh = gradient.to_local().clone(), gradient.device_mesh
        dist.all_reduce(own, group=mesh.get_group())
        return DTensor.from_local(own, mesh, gradient.placements, run_check=False)

    class Norm1(Normed):
        def __init__(self, width: int) -> None:
            super().__init__(width)
            self.up, self.down = nn.Identity(), nn.Identity()  # type: ignore[assignment]

    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        module = Norm1(case["width"])
        module = module.to(getattr(torch, case.dtype)) if early else module
        whole = distribute_tensor(module.weight.detach(), mesh["tp"], [Whole()])
        module.weight = nn.Parameter(whole)
        module.weight.register_hook(summed)  # type: ignore[arg-type]
        return module

    sharded = {"inputs": {"x": Shard(1)}, "outputs": {"output": Shard(1)}}
    about = spec(
        layout=lambda case: Layout(params={"*": Replicate()}, **sharded),
    )
    about = Spec("norm", about.cases, lambda case: Norm1(case["width"]), about.inputs, about.layout)
    assert result(gloo, about, build, {"tp": 2}).verdict is Verdict.PASS


@pytest.mark.parametrize("early", [True, False])
def test_what_hangs_on_their_accumulation_is_lost_only_where_they_are_converted(
    gloo: Engine, early: bool
) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        module = planned(case, mesh, early=early)
        weight = module.up.weight
        module.node = weight.view_as(weight).grad_fn.next_functions[0][0]
        module.node.register_hook(lambda *_: None)
        return module

    found = result(gloo, spec(), build, {"tp": 2})
    if early:
        assert found.verdict is Verdict.PASS, found.mismatches
    else:
        said = "float32 where the case is float64: to convert it loses what hangs on how"
        assert said in str(found.mismatches[0].detail)


# ---- a scaled loss


def adamw(named: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(named.values(), lr=0.01)


def test_a_loss_is_scaled(gloo: Engine) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        return planned(case, mesh, early=False)

    training = Training(adamw, steps=2, scaling=Scaling())
    assert result(gloo, spec(training=training), build, {"tp": 2}).verdict is Verdict.PASS


# ---- FSDP2 over other axes


def of_a_part(mesh: DeviceMesh) -> DeviceMesh:
    return mesh["dp"]._unflatten(0, (2, 2), ("replicate", "shard"))


def of_one_s_own(mesh: DeviceMesh) -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("r", "tp"))


def without_names(mesh: DeviceMesh) -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(4))


def in_another_order(mesh: DeviceMesh) -> DeviceMesh:
    return DeviceMesh("cpu", torch.tensor([3, 1, 2, 0]), mesh_dim_names=("dp",))


MESHES = [of_a_part, of_one_s_own, without_names, in_another_order]


def sharded(mesh_of: Any) -> Any:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        module = Normed(case["width"])
        for one in (module.up, module.down, module):
            fully_shard(one, mesh=mesh_of(mesh))
        return module

    return build


def clipped(module: nn.Module, mesh: DeviceMesh, most: float) -> Tensor:
    norm = nn.utils.clip_grad_norm_(module.parameters(), most)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


OVER_DP: dict[str, Any] = {"layout": lambda case: Layout(), "dp_gradients": "mean", "norm": Norm()}


@pytest.mark.parametrize("mesh_of", MESHES)
def test_axes_of_other_names_are_known_by_their_ranks(gloo: Engine, mesh_of: Any) -> None:
    found = result(
        gloo, spec(**OVER_DP), sharded(mesh_of), {"dp": 4, "tp": 1}, clip=clipped, dtype="bfloat16"
    )
    assert found.verdict is Verdict.PASS, found.mismatches
    short = {name: own for name, own in found.judged.items() if own.judged < own.elements}
    assert not short


@pytest.mark.parametrize("params", [{}, {"*": {"dp": Shard(0)}}])
def test_a_norm_of_each_ranks_own_part_is_named(gloo: Engine, params: Any) -> None:
    def clip(module: nn.Module, mesh: DeviceMesh, most: float) -> Tensor:
        own = [parameter.grad.to_local() for parameter in module.parameters()]  # type: ignore[union-attr]
        return torch.stack([gradient.square().sum() for gradient in own]).sum().sqrt()

    of = spec(**{**OVER_DP, "layout": lambda case: Layout(params=params)})
    check = Check(of, sharded(lambda mesh: mesh["dp"]), clip=clip)
    found = examined(check, Case(SIZES, mesh={"dp": 4, "tp": 1}, dtype="float64"), gloo)
    assert "each rank counts its own part of the gradients alone" in found.diagnosis.message


@pytest.mark.parametrize("names", [("a", "b"), ("tp", "dp"), ("dp", "tp")])
def test_names_of_axes_do_not_count(gloo: Engine, names: Any) -> None:
    mesh = partial(DeviceMesh, "cpu", torch.arange(4).view(2, 2), mesh_dim_names=names)
    build = sharded(lambda _: mesh())  # the first axis holds copies
    found = result(
        gloo,
        spec(layout=lambda case: Layout(params={"*": {"tp": Shard(0)}}), dp_gradients="mean"),
        build,
        {"dp": 2, "tp": 2},
    )
    assert found.verdict is Verdict.PASS, found.mismatches


def test_what_is_sharded_over_a_part_of_tp_is_sharded(gloo: Engine) -> None:
    build = sharded(lambda mesh: mesh["tp"]._unflatten(0, (2, 2), ("a", "b")))
    found = result(gloo, spec(layout=lambda case: Layout()), build, {"tp": 4})
    assert found.verdict is Verdict.PASS, found.mismatches


def test_two_axes_as_one(gloo: Engine) -> None:
    build = sharded(lambda mesh: mesh["data", "cp"]._flatten("data_cp"))
    parts = (
        {"x": {"data": Shard(0), "cp": Shard(1)}},
        {"output": {"data": Shard(0), "cp": Shard(1)}},
    )

    def finalize(module: nn.Module, mesh: DeviceMesh) -> None:
        for parameter in module.parameters():
            parameter.grad *= 4  # FSDP takes the mean, the loss is the sum

    def of(params: Any) -> Spec:
        layout = Layout(params=params, inputs=parts[0], outputs=parts[1])
        return spec(layout=lambda case: layout, finalize=finalize)

    mesh = {"data": 2, "cp": 2, "tp": 1}
    found = result(gloo, of({}), build, mesh)
    assert found.verdict is Verdict.PASS, found.mismatches
    both = {"data": Shard(0), "cp": Shard(0)}
    found = result(gloo, of({"*": both}), build, mesh)  # in other words
    assert found.verdict is Verdict.PASS, found.mismatches
    found = result(gloo, of({"*": {"data": Shard(0)}}), build, mesh)
    assert {m.kind for m in found.causes} == {Kind.SHARDING}


def test_a_wrong_one_over_such_axes_is_found(gloo: Engine) -> None:
    def finalize(module: nn.Module, mesh: DeviceMesh) -> None:
        module.up.weight.grad *= 2  # type: ignore[operator]

    of = spec(**{**OVER_DP, "norm": None}, finalize=finalize)
    found = result(gloo, of, sharded(of_a_part), {"dp": 4, "tp": 1})
    wrong = {(m.kind, m.tensor) for m in found.mismatches}
    assert wrong == {(Kind.PARAM_GRAD, "up.weight")}


# ---- what they are wrong by


def test_a_layout_that_does_not_name_them_hides_no_cause(gloo: Engine) -> None:
    def build(case: Case, mesh: DeviceMesh) -> nn.Module:
        module = planned(case, mesh, early=True)
        module.up.weight.register_hook(doubled)
        return module

    of = (spec(), spec(layout=lambda case: Layout()))
    case = Case(SIZES, mesh={"tp": 2}, dtype="float64")
    named, unnamed = (examined(Check(one, build), case, gloo).diagnosis for one in of)
    assert named.message == unnamed.message and "(2 × it)" in named.message
