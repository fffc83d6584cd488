"""Styles that don't fit together, and whole parameters on split activations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from tpcheck import Plan, audit

H, A, D = 16, 4, 6  # hidden, heads, head_dim


def linear(k: int, n: int) -> nn.Linear:
    return nn.Linear(k, n, bias=False, device="meta")


def attention(**more: nn.Module) -> nn.Module:
    names = {f"{name}_proj": linear(H, A * D) for name in "qkv"}
    return nn.ModuleDict({**names, "o_proj": linear(A * D, H), **more})


def mlp() -> nn.Module:
    return nn.ModuleDict({"w1": linear(H, 32), "w2": linear(32, H), "w3": linear(H, 32)})


def norm(size: int) -> nn.Module:
    return nn.RMSNorm(size, device="meta")


def model(**more: nn.Module) -> nn.Module:
    def block() -> nn.Module:
        return nn.ModuleDict({"attn": attention(**more), "mlp": mlp(), "norm": norm(H)})

    head = linear(H, 40)
    layers = nn.ModuleList(block() for _ in range(2))
    embed = nn.Embedding(40, H, device="meta")
    return nn.ModuleDict({"embed": embed, "layers": layers, "head": head})


RIGHT: dict[str, Any] = {
    "embed": "embedding",
    "layers.*.attn.[qkv]_proj": "colwise",
    "layers.*.attn.o_proj": "rowwise",
    "layers.*.mlp.w[13]": "colwise",
    "layers.*.mlp.w2": "rowwise",
    "head": "colwise",
}
NORM = ("*.norm.weight",)


def faults(given: nn.Module, changes: dict[str, Any], **declared: Any) -> list[tuple[str, ...]]:
    """The names of what is wrongly placed."""
    entries = {k: v for k, v in {**RIGHT, **changes}.items() if v is not None}
    whole = declared.pop("whole", ("*",))
    found = audit(given, Plan(entries, whole=whole, **declared), tp=2).findings
    assert {finding.code for finding in found} <= {"wrong-placement"}, found
    return [finding.names for finding in found]


# ---- splits that are paired


def test_down_before_up_is_paired_all_the_same() -> None:
    """Llama's w1, w2, w3: the row split is registered between the column splits."""
    assert faults(model(), {}) == []


def test_a_head_outside_all_blocks_is_the_models_output() -> None:
    assert faults(model(), {"head": "colwise_rep"}) == []


def test_column_splits_whose_row_split_is_in_another_module() -> None:
    """BERT: attention.self.* and attention.output.dense, intermediate.dense and output.dense."""
    inner = nn.ModuleDict({n: linear(H, A * D) for n in ("query", "key", "value")})
    layer = nn.ModuleDict(
        {
            "attention": nn.ModuleDict(
                {"self": inner, "output": nn.ModuleDict({"dense": linear(A * D, H)})}
            ),
            "intermediate": nn.ModuleDict({"dense": linear(H, 32)}),
            "output": nn.ModuleDict({"dense": linear(32, H)}),
        }
    )
    given = nn.ModuleDict({"layer": nn.ModuleList([layer])})
    plan: dict[str, Any] = {
        "layer.*.attention.self.*": "colwise",
        "layer.*.attention.output.dense": "rowwise",
        "layer.*.intermediate.dense": "colwise",
        "layer.*.output.dense": "rowwise",
    }
    assert audit(given, plan, tp=2).findings == []
    plan["layer.*.attention.output.dense"] = "rowwise_rep"
    (found,) = audit(given, plan, tp=2).findings
    assert found.code == "wrong-placement" and len(found.names) == 3


def test_the_order_of_registration_does_not_matter_to_siblings() -> None:
    def layer(out: nn.Module, inner: nn.Module) -> nn.Module:
        return nn.ModuleDict({"out": nn.ModuleDict({"dense": out}), "self": inner})

    inner = nn.ModuleDict({n: linear(H, A * D) for n in ("query", "key", "value")})
    block = nn.ModuleDict(
        {
            "attention": layer(linear(A * D, H), inner),
            "feed": layer(linear(32, H), nn.ModuleDict({"a": linear(H, 32), "b": linear(H, 32)})),
        }
    )
    given = nn.ModuleDict({"layers": nn.ModuleList([block])})
    plan: dict[str, Any] = {"layers.*.*.self.*": "colwise", "layers.*.*.out.dense": "rowwise"}
    assert audit(given, plan, tp=2).findings == []
    for alone in ({"layers.*.feed.self.*": "colwise"}, {"layers.*.attention.out.dense": "rowwise"}):
        found = audit(given, Plan(alone, whole=("*",)), tp=2).findings
        assert [f.code for f in found] == ["wrong-placement"], found


class HeadAware(ParallelStyle):
    """A style of one's own: the rows of a fused [q | k | v], each rank its heads'."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        rows = module.get_parameter("weight").detach().unflatten(0, (3, A, -1))
        own = rows.transpose(0, 1).flatten(0, 2)
        module.weight = nn.Parameter(distribute_tensor(own, device_mesh, [Shard(0)]))
        return module


def test_beside_a_style_of_ones_own_nothing_is_known() -> None:
    def build() -> nn.Module:
        block = nn.ModuleDict({"qkv": linear(H, 3 * A * D), "o_proj": linear(A * D, H)})
        return nn.ModuleDict({"layers": nn.ModuleList([block])})

    row = {"layers.*.o_proj": RowwiseParallel()}
    assert audit(build(), {"layers.*.qkv": HeadAware(), **row}, tp=2).findings == []
    found = audit(build(), Plan(row, whole=("*.qkv.weight",)), tp=2).findings
    assert [finding.names for finding in found] == [("layers.0.o_proj",)]


def test_a_row_split_within_a_nested_module() -> None:
    gated = nn.ModuleDict({"gate_proj": linear(H, A * D), "o_proj": linear(A * D, H)})
    block = nn.ModuleDict({f"{n}_proj": linear(H, A * D) for n in "qkv"} | {"out": gated})
    given = nn.ModuleDict({"layers": nn.ModuleList([block])})
    plan = {
        "layers.*.*_proj": "colwise",
        "layers.*.out.gate_proj": "colwise",
        "layers.*.out.o_proj": "rowwise",
    }
    assert audit(given, plan, tp=2).findings == []


@pytest.mark.parametrize("style", ["colwise", "rowwise_rep"])
def test_features_that_no_row_split_takes(style: str) -> None:
    (names,) = faults(model(), {"layers.*.mlp.w2": style})
    assert {"layers.0.mlp.w1", "layers.1.mlp.w3"} <= set(names)


def test_a_row_split_whose_input_is_whole() -> None:
    (names,) = faults(model(), {"layers.*.attn.[qkv]_proj": None})
    assert names == ("layers.0.attn.o_proj", "layers.1.attn.o_proj")
    assert faults(model(), {"layers.*.attn.[qkv]_proj": "colwise_rep"}) == [names]


def test_sizes_that_torch_splits_unevenly_and_does_not_take() -> None:
    def build(size: int) -> nn.Module:
        block = nn.ModuleDict({"up": linear(H, size), "down": linear(size, H)})
        return nn.ModuleDict({"layers": nn.ModuleList([block])})

    plan: dict[str, Any] = {"layers.*.up": ColwiseParallel(), "layers.*.down": RowwiseParallel()}
    (found,) = audit(build(33), plan, tp=2).findings
    assert found.names == ("layers.0.down",) and "in_features=33" in found.message
    assert audit(build(33), plan, tp=3).findings == []
    as_dtensors = {**plan, "layers.*.up": ColwiseParallel(use_local_output=False)}
    assert audit(build(33), as_dtensors, tp=2).findings == []
    strings = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}  # transformers takes them
    assert audit(build(33), strings, tp=2).findings == []


def test_embeddings() -> None:
    assert faults(model(), {"embed": "rowwise_rep"}) == []
    assert faults(model(), {"embed": "colwise_rep"}) == []
    assert faults(model(), {"embed": "rowwise"}) == [("embed",)]
    assert faults(model(), {"embed": "colwise"}) == [("embed",)]


def test_a_bias_of_relative_positions_is_split_as_the_heads_are() -> None:
    """T5's: an embedding with a column a head, beside q, k, v."""
    given = model(bias=nn.Embedding(32, A, device="meta"))
    assert faults(given, {"layers.*.attn.bias": "colwise"}) == []
    hidden = model(bias=nn.Embedding(32, H, device="meta"))
    assert faults(hidden, {"layers.*.attn.bias": "colwise"}) == [
        ("layers.0.attn.bias",),
        ("layers.1.attn.bias",),
    ]


def test_whole_keys_and_values_of_split_queries() -> None:
    """Multi-query attention: each rank's keys get the gradient of its own query heads."""
    plan: dict[str, Any] = {"layers.*.attn.[qkv]_proj": None, "layers.*.attn.q_proj": "colwise"}
    kv = tuple(f"layers.{i}.attn.{n}_proj.weight" for i in (0, 1) for n in "kv")
    assert faults(model(), plan) == [kv]
    assert faults(model(), plan, reduced=("*.[kv]_proj.weight",)) == []
    assert faults(model(), {**plan, "layers.*.attn.q_proj": "colwise_rep"}) == [
        ("layers.0.attn.o_proj", "layers.1.attn.o_proj")
    ]


def test_whole_latent_projections_that_hold_the_rotary_keys() -> None:
    latent = {"kv_a_proj_with_mqa": linear(H, 10), "kv_b_proj": linear(8, 2 * A * D)}
    block = nn.ModuleDict({**latent, "q_proj": linear(H, A * D), "o_proj": linear(A * D, H)})
    given = nn.ModuleDict({"layers": nn.ModuleList([block])})
    plan = {f"layers.*.{n}": "colwise" for n in ("q_proj", "kv_b_proj")}
    plan["layers.*.o_proj"] = "rowwise"
    (found,) = audit(given, Plan(plan, whole=("*_with_mqa.weight",)), tp=2).findings
    assert found.names == ("layers.0.kv_a_proj_with_mqa.weight",)
    plan["layers.*.kv_a_proj_with_mqa"] = "mla_kv_a_proj"
    assert audit(given, plan, tp=2).findings == []


def test_a_scalar_may_be_outside_the_splits() -> None:
    block = mlp()
    block.register_parameter("alpha", nn.Parameter(torch.ones((), device="meta")))
    given = nn.ModuleDict({"layers": nn.ModuleList([block])})
    plan = {"layers.*.w[13]": "colwise", "layers.*.w2": "rowwise"}
    assert audit(given, Plan(plan, whole=("*.alpha",)), tp=2).findings == []
    block["act_fn"] = nn.PReLU(device="meta")  # of an activation it is in between (Apertus)
    whole = ("*.alpha", "*.act_fn.weight")
    (found,) = audit(given, Plan(plan, whole=whole), tp=2).findings
    assert found.names == ("layers.0.act_fn.weight",)


# ---- whole parameters between splits by features


def test_norms_of_q_and_k_see_this_ranks_heads() -> None:
    given = model(q_norm=norm(D), k_norm=norm(D))
    (names,) = faults(given, {})
    assert set(names) == {f"layers.{i}.attn.{n}_norm.weight" for i in (0, 1) for n in "qk"}
    assert faults(given, {"layers.*.attn.[qk]_norm": "replicated_with_grad_allreduce"}) == []
    assert faults(given, {"layers.*.attn.[qk]_norm": SequenceParallel(sequence_dim=2)}) == []
    assert faults(given, {}, reduced=("*.[qk]_norm.weight",)) == []
    # one norm over all heads is found by its name, even where its size is that of the input
    assert len(faults(model(q_norm=norm(H)), {})) == 1


def test_vectors_between_splits_are_told_by_their_size() -> None:
    sinks = model()
    for layer in sinks["layers"]:  # type: ignore[index, union-attr]
        layer["attn"].register_parameter("sinks", nn.Parameter(torch.empty(A, device="meta")))
    (names,) = faults(sinks, {})
    assert names == ("layers.0.attn.sinks", "layers.1.attn.sinks")
    # a norm before the projections has their input's size
    assert faults(model(pre=norm(H)), {}) == []
    # and one between a whole projection and a split one has that of the former's output
    latent = model(kv_a_proj=linear(H, 5), kv_a_layernorm=norm(5))
    assert faults(latent, {}) == []


# ---- whole parameters on a part of the sequence


def sequence(**more: Any) -> dict[str, Any]:
    column, row = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
    return {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "layers.*.attn.[qkv]_proj": column,
        "layers.*.attn.o_proj": row,
        "layers.*.mlp.w[13]": column,
        "layers.*.mlp.w2": row,
        "layers.*.norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1)),
        **more,
    }


def test_a_norm_without_a_style_under_sequence_parallelism() -> None:
    assert faults(model(), sequence()) == []
    (names,) = faults(model(), sequence(**{"layers.*.norm": None}))
    assert names == ("layers.0.norm.weight", "layers.1.norm.weight")
    assert faults(model(), sequence(**{"layers.*.norm": None}), reduced=NORM) == []


def test_a_whole_head_under_sequence_parallelism() -> None:
    assert faults(model(), sequence(head=None)) == [("head.weight",)]
    gathers = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    assert faults(model(), sequence(head=gathers)) == []


def test_a_bias_of_ones_own_after_the_row_split() -> None:
    given = model()
    for layer in given["layers"]:  # type: ignore[index, union-attr]
        layer.register_parameter("out_bias", nn.Parameter(torch.empty(H, device="meta")))
    assert faults(given, {}) == []  # whole activations: every rank has the same gradient
    assert faults(given, sequence()) == [("layers.0.out_bias", "layers.1.out_bias")]


def test_a_sequence_norm_on_whole_activations() -> None:
    (names,) = faults(model(), {"layers.*.norm": SequenceParallel()})[:1]
    assert {"layers.0.norm", "layers.0.attn.o_proj", "layers.0.mlp.w2"} <= set(names)
    as_dtensors = RowwiseParallel(use_local_output=False)
    rows = {"layers.*.attn.o_proj": as_dtensors, "layers.*.mlp.w2": as_dtensors}
    assert faults(model(), {"layers.*.norm": SequenceParallel(), **rows}) == []
