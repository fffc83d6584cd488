"""The order of parallelisms in models that no check has built: meshes with names of their own, and
tensors that were sharded by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from tests.fake_ranks import fake_ranks
from tpcheck import InvalidArgument, order
from tpcheck.plan.unknown_style import quiet

CUT = {"0.weight": ["tp"], "0.bias": ["tp"]}
FULL = nn.Sequential(nn.Linear(4, 4)).state_dict()
WRONG = [order.Row.CHECKPOINTING_BEFORE_TP]


@pytest.fixture(autouse=True)
def ranks() -> Iterator[None]:
    with fake_ranks(4), quiet():
        yield


def mesh(*names: str) -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def cut_by_plan(over: DeviceMesh) -> nn.Module:
    return parallelize_module(nn.Linear(4, 4), over, ColwiseParallel())


def cut_by_hand(_: DeviceMesh) -> nn.Module:
    return nn.Linear(4, 2)


def never_cut(_: DeviceMesh) -> nn.Module:
    return nn.Linear(4, 4)


def wrapped(inner: nn.Module) -> nn.Module:
    return nn.Sequential(checkpoint_wrapper(inner))


def rows(model: nn.Module, **given: Any) -> list[order.Row]:
    return [found.row for found in order.broken(model, cut=CUT, **given)]


@pytest.mark.parametrize("names", [("dp", "tp"), ("data", "model"), ("replicate", "tensor")])
@pytest.mark.parametrize("sharded", [False, True], ids=["", "fsdp"])
@pytest.mark.parametrize(
    ("build", "told"), [(cut_by_plan, []), (cut_by_hand, []), (never_cut, WRONG)]
)
def test_tp_before_checkpointing_is_the_right_order_whatever_axes_are_called(
    build: Callable[[DeviceMesh], nn.Module], told: list[order.Row], sharded: bool, names: Any
) -> None:
    data, model = (mesh(*names)[name] for name in names)
    built = wrapped(build(model))
    if sharded:
        fully_shard(built, mesh=data)
    assert rows(built, full=FULL) == told
    assert rows(built) == []  # a module of its own shape may be what was sharded by hand


@pytest.mark.parametrize("name", ["data", "dp"])
def test_an_axis_of_fsdp_is_not_tp(name: str) -> None:
    built = fully_shard(wrapped(never_cut(mesh(name, "model"))), mesh=mesh(name, "model")[name])
    assert order.applied(built) == ["checkpointing", "fsdp"]
    built = fully_shard(wrapped(never_cut(mesh(name, "model"))))  # its mesh has no names
    assert order.applied(built) == ["checkpointing", "fsdp"]
    assert rows(built, full=FULL) == WRONG


def test_a_mesh_without_names_and_axes_that_are_said() -> None:
    built = wrapped(cut_by_plan(DeviceMesh("cpu", torch.arange(2))))
    assert rows(built, full=FULL) == []
    assert order.applied(built) == ["tp", "checkpointing"]
    built = wrapped(cut_by_plan(mesh("data", "model")["model"]))
    assert order.applied(built) == ["tp", "checkpointing"]
    assert rows(built, full=FULL, axes=lambda _: ["zero"]) == WRONG
    assert rows(built, full=FULL, axes=lambda _: ["tp"]) == []


@pytest.mark.parametrize(
    ("axis", "steps"), [("ep", ["ep"]), ("dp_shard_cp", []), ("fsdp", []), ("tensor", ["tp"])]
)
def test_an_axis_is_not_tp_where_its_name_says_another(axis: str, steps: list[str]) -> None:
    built = wrapped(cut_by_plan(mesh("outer", axis)[axis]))
    assert order.applied(built) == [*steps, "checkpointing"]


def test_fsdp1_knows_the_shapes_that_it_took() -> None:
    for build, told in ((never_cut, [order.Row.FSDP_BEFORE_TP]), (cut_by_hand, [])):
        inner = build(mesh("data", "model"))
        built = FullyShardedDataParallel(
            nn.Sequential(inner), use_orig_params=True, device_id=torch.device("cpu")
        )
        assert rows(built, full=FULL) == told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cut": ["0.weight"]}, "cut=.*: give parameter → mesh axes"),
        ({"axes": "tp"}, "axes='tp': give a function mesh → what each of its axes is"),
    ],
)
def test_what_is_no_cut_and_no_axes_is_refused(given: Any, words: str) -> None:
    for asked in (order.broken, order.applied):
        with pytest.raises(InvalidArgument, match=words):
            asked(nn.Linear(4, 4), **given)


@pytest.mark.parametrize("full", [nn.Linear(4, 4), {"0.weight": 4}], ids=["module", "number"])
def test_what_is_not_the_whole_parameters_is_refused(full: Any) -> None:
    with pytest.raises(InvalidArgument, match="give parameter → whole tensor"):
        order.broken(nn.Linear(4, 4), full=full)
