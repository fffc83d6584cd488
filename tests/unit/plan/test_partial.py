"""Replicated parameters on activations of which a rank has a part."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    PrepareModuleInput,
    SequenceParallel,
)

from tests.unit.plan.models import (
    NORM,
    A,
    D,
    H,
    faults,
    linear,
    mlp,
    model,
    norm,
    sequence,
)
from tpcheck import Plan, audit

# ---- heads


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


# ---- features


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


# ---- the sequence


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
