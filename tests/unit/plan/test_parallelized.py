"""A parallelized model held against its plan, on meshes whose ranks are not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from fixtures.plans import qwen, subjects
from tests.candidates import PLANNED
from tests.fake_ranks import fake_ranks
from tpcheck import Case, InvalidArgument, Plan, audit
from tpcheck.plan.unknown_style import fake_mesh, quiet

CASE = Case(dims=PLANNED | {"bias": True}, mesh={"tp": 2})
PLAN = qwen.PLAN


def model(**switches: bool) -> Any:
    with torch.device("meta"):
        return subjects.qwen_model(CASE, **switches)


def parallelized(mesh: DeviceMesh, plan: dict[str, Any] | None = None, **switches: bool) -> Any:
    entries = qwen.resolve(qwen.full_plan()) if plan is None else plan
    return parallelize_module(model(**switches), mesh, entries)


def test_a_right_model_has_no_finding(mesh: DeviceMesh) -> None:
    result = audit(parallelized(mesh), PLAN, mesh=mesh)
    assert result.findings == [] and result.live
    planned = audit(model(), PLAN, tp=2)
    live, promised = (
        {p.name: (p.placement, p.held) for p in rows.parameters} for rows in (result, planned)
    )
    assert live == promised
    sizes = (result.whole_bytes, result.promised_bytes, result.held_bytes)
    assert sizes == (planned.whole_bytes, planned.promised_bytes, planned.held_bytes)


def test_wrapping_after_the_plan_changes_nothing(mesh: DeviceMesh) -> None:
    given = parallelized(mesh)
    for name, layer in list(given.model.layers.named_children()):
        given.model.layers.register_module(name, checkpoint_wrapper(layer))
    assert audit(given, PLAN, mesh=mesh).findings == []


@pytest.mark.parametrize("names", [("copies", "model"), ("tp", "model"), None])
def test_the_mesh_that_is_given_says_which_axis_is_tp(names: Any) -> None:
    with fake_ranks(4):
        whole = init_device_mesh("cpu", (2, 2), mesh_dim_names=names or ("a", "b"))
        own: Any = whole["model"] if names else DeviceMesh("cpu", torch.arange(2))
        given = parallelized(own)
        assert audit(given, PLAN, mesh=own).findings == []
        if names:
            other = parallelized(whole[names[0]])
            assert "parameter-not-sharded" in audit(other, PLAN, mesh=own).codes


def test_a_plan_that_was_not_applied(mesh: DeviceMesh) -> None:
    result = audit(model(), PLAN, mesh=mesh)
    assert result.codes == ["parameter-not-sharded"]
    said = {name for finding in result.findings for name in finding.names}
    assert {"lm_head.weight", "model.layers.1.mlp.up_proj.weight"} <= said
    assert result.held_bytes == result.whole_bytes > result.promised_bytes


def test_a_plan_that_was_applied_to_wrapped_layers(mesh: DeviceMesh) -> None:
    given = model()
    given.model.layers[1] = checkpoint_wrapper(given.model.layers[1])
    with pytest.warns(UserWarning, match="could not be resolved"):
        parallelize_module(given, mesh, qwen.resolve(qwen.full_plan()))
    result = audit(given, PLAN, mesh=mesh)
    assert result.codes == ["parameter-not-sharded"]
    assert all(name.startswith("model.layers.1.") for f in result.findings for name in f.names)
    given = model()
    for i in range(2):
        given.model.layers[i] = checkpoint_wrapper(given.model.layers[i])
    with pytest.warns(UserWarning, match="could not be resolved"):
        parallelize_module(given, mesh, qwen.resolve(qwen.full_plan()))
    result = audit(given, PLAN, mesh=mesh)
    assert result.codes == ["plan-entry-unmatched"]
    assert "behind CheckpointWrapper" in result.findings[0].message


def test_another_placement_than_promised(mesh: DeviceMesh) -> None:
    other = qwen.resolve(qwen.full_plan()) | {"model.layers.0.mlp.up_proj": RowwiseParallel()}
    del other["model.layers.*.mlp.up_proj"]
    other["model.layers.1.mlp.up_proj"] = ColwiseParallel()
    result = audit(parallelized(mesh, other), PLAN, mesh=mesh)
    assert [(f.code, f.names) for f in result.findings] == [
        ("wrong-placement", ("model.layers.0.mlp.up_proj.weight",))
    ]
    assert "Shard(1), 'model.layers.*.mlp.up_proj' promises Shard(0)" in result.findings[0].message


def test_ties_that_parallelizing_split_and_ties_made_again(mesh: DeviceMesh) -> None:
    tied = Plan(PLAN.entries, PLAN.whole, PLAN.reduced, tied=(TIE,))
    split = parallelized(mesh, tie_word_embeddings=True)
    assert split.lm_head.weight is not split.model.embed_tokens.weight
    found = [f for f in audit(split, tied, mesh=mesh).findings if "before" in f.message]
    assert [(f.code, f.names) for f in found] == [("tied-weights-split", TIE)]
    split.lm_head.weight = split.model.embed_tokens.weight
    split.tie_weights = lambda: None
    assert audit(split, tied, mesh=mesh).findings == []


TIE = ("model.embed_tokens.weight", "lm_head.weight")


def test_the_tp_axis_of_a_larger_mesh() -> None:
    with fake_ranks(4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with quiet():
            given = parallelized(mesh["tp"])
        assert audit(given, PLAN, mesh=mesh).findings == []
        other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        with pytest.raises(InvalidArgument) as caught:
            audit(given, PLAN, mesh=other)
        assert str(caught.value) == (
            """mesh has the axes ('dp', 'cp'), and none is "tp"; give mesh["dp"] or mesh["cp"], """
            "whichever is the axis of tensor parallelism"
        )
        for axis in ("dp", "cp"):  # what the line names can be given
            audit(given, PLAN, mesh=other[axis])
        with pytest.raises(InvalidArgument, match="2 axes without names; give it mesh_dim_names"):
            audit(given, PLAN, mesh=init_device_mesh("cpu", (2, 2)))


def test_shards_over_a_mesh_without_a_tp_axis_are_whole_along_it() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    with fake_ranks(4):
        other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "ep"))
        tp = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        given = nn.Linear(8, 8, bias=False, device="meta")
        with quiet():
            split = distribute_tensor(given.weight, other, [Shard(0), Shard(1)])
        given.weight = nn.Parameter(split)
        (found,) = audit(given, ColwiseParallel(), mesh=tp).findings
        assert (found.code, found.names) == ("parameter-not-sharded", ("weight",))


def test_a_process_group_that_exists_is_left_alone(mesh: DeviceMesh) -> None:
    with pytest.raises(InvalidArgument, match="one exists already"), fake_mesh(2):
        pass
    assert dist.is_initialized()
