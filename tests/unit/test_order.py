"""What torch refused in a build is told by what it was given, not by what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from tests.fake_ranks import fake_ranks
from tpcheck import order
from tpcheck.plan.unknown_style import quiet


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    with fake_ranks(4), quiet():
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def raised(build: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        build()
    return caught.value


def test_a_plan_on_what_fsdp_has_sharded(mesh: DeviceMesh) -> None:
    model = fully_shard(nn.Linear(8, 8), mesh=mesh["dp"])
    error = raised(lambda: parallelize_module(model, mesh["tp"], ColwiseParallel()))
    assert order.refused(error) is order.Row.FSDP_BEFORE_TP


def test_the_refusal_behind_an_error_of_the_frameworks_own(mesh: DeviceMesh) -> None:
    split = distribute_tensor(torch.ones(4), mesh["dp"], [Shard(0)])

    def build(suppress: bool) -> None:
        try:
            distribute_tensor(split, mesh["tp"], [Shard(0)])
        except ValueError as error:
            if suppress:
                raise RuntimeError("another matter") from None
            raise RuntimeError("could not apply the plan") from error

    assert order.refused(raised(lambda: build(False))) is order.Row.FSDP_BEFORE_TP
    assert order.refused(raised(lambda: build(True))) is None


def test_other_errors_of_the_same_call_are_no_matter_of_order(mesh: DeviceMesh) -> None:
    split = distribute_tensor(torch.ones(4), mesh["tp"], [Shard(0)])
    other = raised(lambda: distribute_tensor(split, mesh["tp"], [Shard(0), Shard(0)]))
    assert order.refused(other) is None
    assert order.refused(raised(lambda: distribute_tensor(3, mesh["tp"]))) is None  # type: ignore[arg-type]


def test_the_words_of_the_refusal_decide_nothing(mesh: DeviceMesh) -> None:
    def build() -> None:
        raise ValueError("Cannot distribute a DTensor with device mesh A to a different mesh B")

    assert order.refused(raised(build)) is None


def test_a_plain_module_has_no_order_and_nothing_broken() -> None:
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert order.broken(plain) == [] and order.applied(plain) == []


def test_routed_layers_on_a_mesh_with_stages() -> None:
    (broken,) = order.broken(nn.Linear(2, 2), cut={"weight": ["ep"]}, mesh={"pp": 2, "ep": 2})
    assert (broken.row, broken.names) == (order.Row.MOE_WITH_PIPELINE, ("weight",))
    assert broken.message == (
        "weight: tokens are routed by their data, stages are cut once for all"
    )
    assert order.broken(nn.Linear(2, 2), cut={"weight": ["ep"]}, mesh={"pp": 1}) == []


def test_an_error_that_causes_itself_is_looked_at_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert order.refused(first) is None
