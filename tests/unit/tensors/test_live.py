"""Where DTensors are placed, in tpcheck's words and in a plan's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from tests.fake_ranks import fake_ranks
from tpcheck import placement
from tpcheck.tensors.live import (
    like,
    live_entry,
    marked_entry,
    mesh_axes,
    partition_entry,
    plan_placement,
)


@pytest.fixture(autouse=True)
def rank_1_of_4() -> Iterator[None]:
    with fake_ranks(4, rank=1):
        yield


def on(sizes: tuple[int, ...], names: tuple[str, ...] | None, *placements: Any) -> DTensor:
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    return DTensor.from_local(torch.ones(4, 4), mesh, placements)


SHARD, WHOLE = placement.Shard, placement.Replicate()


@pytest.mark.parametrize(
    ("names", "placements", "entry", "planned"),
    [
        (("dp", "tp"), (Replicate(), Shard(1)), {"dp": WHOLE, "tp": SHARD(1)}, SHARD(1)),
        # FSDP after TP: the axis of FSDP is applied last
        (
            ("dp", "tp"),
            (_StridedShard(0, split_factor=2), Shard(0)),
            {"tp": SHARD(0), "dp": SHARD(0)},
            SHARD(0),
        ),
        # packed columns: two blocks, each sharded
        (
            ("dp", "tp"),
            (Replicate(), _StridedShard(0, split_factor=2)),
            {"dp": WHOLE, "tp": placement.Blocks(0, ((4, SHARD(0)), (4, SHARD(0))))},
            SHARD(0),
        ),
        (("dp", "tp"), (Shard(0), Partial()), {"dp": SHARD(0), "tp": placement.Partial()}, WHOLE),
        (("dp", "ep"), (Shard(0), Shard(1)), {"dp": SHARD(0), "ep": SHARD(1)}, WHOLE),
        # of a mesh without names the first axis is taken for tp
        (None, (Shard(1), Replicate()), {"tp": SHARD(1), "1": WHOLE}, SHARD(1)),
    ],
)
def test_a_dtensor_says_how_it_is_placed(
    names: Any, placements: Any, entry: Any, planned: Any
) -> None:
    tensor = on((2, 2), names, *placements)
    found = live_entry(tensor)
    assert (found, list(found)) == (entry, list(entry))
    assert plan_placement(tensor) == planned


def test_packed_blocks_are_those_that_the_rank_holds() -> None:
    full = torch.arange(16.0).reshape(16, 1)  # [gate 0..7 | up 8..15]
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    packed = distribute_tensor(full, mesh, [_StridedShard(0, split_factor=2)], src_data_rank=None)
    entry = live_entry(packed)["tp"]
    assert entry == placement.Blocks(0, ((8, SHARD(0)), (8, SHARD(0))))
    assert packed.to_local().flatten().tolist() == [2.0, 3.0, 10.0, 11.0]
    assert entry.indices(16, 4, 1) == [2, 3, 10, 11]


def over_tp(local: torch.Tensor, placement: Any, *shape: int) -> DTensor:
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    whole = torch.empty(shape)
    about = {"shape": whole.shape, "stride": whole.stride()}
    return DTensor.from_local(local, mesh, [placement], **about)


def test_an_upstream_gradient_is_as_large_as_its_output_where_parts_are_not_equal() -> None:
    """Of 7 columns rank 1 of 4 has 2, and rank 3 has 1."""
    seed = torch.ones(3, 5)[:, :2]
    upstream: Any = like(over_tp(torch.ones(3, 2), Shard(1), 3, 7), seed)
    assert upstream.shape == (3, 7) and upstream.placements == (Shard(1),)
    assert upstream.to_local().stride() == (5, 1) and upstream.stride() == (17, 1)
    rows: Any = like(over_tp(torch.ones(2, 3), Shard(0), 7, 3), torch.ones(3, 2).t())
    assert rows.shape == (7, 3) and rows.stride() == (1, 7)


def test_each_term_of_a_sum_has_all_of_its_gradient() -> None:
    upstream: Any = like(over_tp(torch.ones(3, 2), Partial(), 3, 2), torch.ones(3, 2))
    assert upstream.placements == (Replicate(),)


def test_a_gradient_of_other_dims_is_for_who_compares_to_tell() -> None:
    assert like(over_tp(torch.ones(3, 2), Replicate(), 3, 2), torch.ones(6)).shape == (6,)
    assert like(torch.ones(2), seed := torch.ones(2)) is seed


def test_a_plain_tensor_says_nothing() -> None:
    assert plan_placement(torch.ones(2)) is None
    assert mesh_axes(torch.ones(2)) == ()


def test_the_axes_of_a_dtensor_are_those_that_have_names() -> None:
    assert mesh_axes(on((2, 2), ("dp", "tp"), Shard(0), Replicate())) == ("dp", "tp")
    assert mesh_axes(on((4,), None, Shard(0))) == ()


def marked(*shape: int, **marks: Any) -> torch.Tensor:
    tensor = torch.ones(shape)
    for name, value in marks.items():
        setattr(tensor, name, value)
    return tensor


FULL = torch.ones(8, 4)


@pytest.mark.parametrize(
    ("marks", "entry"),
    [
        ({"partition_dim": 0, "partition_stride": 1}, {"tp": SHARD(0)}),
        (
            {"partition_dim": 0, "partition_stride": 2},
            {"tp": placement.Blocks(0, ((4, SHARD(0)),) * 2)},
        ),
        ({}, None),  # DeepSpeed's mark
        ({"partition_dim": -1, "partition_stride": 1}, None),
        ({"partition_dim": 2, "partition_stride": 1}, None),
        ({"partition_dim": 0, "partition_stride": 3}, None),
        ({"partition_dim": None, "partition_stride": 1}, None),
    ],
)
def test_marks_are_read_where_they_can_be(marks: dict[str, Any], entry: Any) -> None:
    assert partition_entry(marked(2, 4, tensor_model_parallel=True, **marks), FULL) == entry
    assert partition_entry(marked(2, 4, tensor_model_parallel=False, **marks), FULL) is None
    assert partition_entry(marked(2, 4, tensor_model_parallel=FULL, **marks), FULL) is None


@pytest.mark.parametrize(
    ("shape", "entry"),
    [((2, 4), {"tp": SHARD(0)}), ((8, 1), {"tp": SHARD(1)}), ((8, 4), {}), ((2, 2), {})],
)
def test_a_mark_that_does_not_say_how_is_read_by_the_shape(shape: Any, entry: Any) -> None:
    assert marked_entry(marked(*shape, tensor_model_parallel=True), FULL) == entry
    assert marked_entry(marked(*shape), FULL) == {}
    assert marked_entry(marked(2, tensor_model_parallel=True), FULL) == {}
