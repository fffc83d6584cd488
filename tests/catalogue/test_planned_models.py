"""What the planned models refuse, how they are built on the meta device, and what switches
sequence parallelism off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import SequenceParallel

from fixtures.plans import qwen, qwen_weights, transformer
from tpcheck import audit

QWEN = qwen.QwenConfig(
    vocab_size=16,
    hidden_size=8,
    intermediate_size=12,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    merge_qkv=True,
)
CONFIG = transformer.TransformerConfig(
    vocab_size=16, dim=8, intermediate=12, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=4
)


def test_lora_is_refused(mesh: DeviceMesh) -> None:
    model = qwen.QwenForCausalLM(QWEN)
    model.model.layers[0].mlp.down_proj = qwen.LoraLinear(12, 8, rank=2)
    with pytest.raises(NotImplementedError, match="LoRA is not supported"):
        qwen.parallelize(model, mesh)
    assert not any(isinstance(p, DTensor) for p in model.parameters())


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "num_attention_heads=3, num_key"),
        ({"num_key_value_heads": 1}, "divide num_key_value_heads=1$"),
        ({"hidden_size": 9}, "divide hidden_size=9$"),
        ({"intermediate_size": 13}, "divide intermediate_size=13$"),
    ],
)
def test_sizes_that_do_not_divide_are_named(
    mesh: DeviceMesh, sizes: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=f"tensor_parallel_size=2 does not {words}|{words}"):
        qwen.parallelize(qwen.QwenForCausalLM(replace(QWEN, **sizes)), mesh)


def test_built_on_the_meta_device_and_loaded_after_parallelizing(mesh: DeviceMesh) -> None:
    with torch.device("meta"):
        model = qwen.QwenForCausalLM(QWEN)
    qwen.parallelize(model, mesh)
    assert all(p.is_meta for p in model.parameters())
    assert not any("qkv_proj" in name for name, _ in model.named_modules())
    qwen_weights.materialize(model, "cpu")
    up = model.model.layers[0].mlp.up_proj.weight
    assert isinstance(up, DTensor) and up.to_local().shape == (6, 8)
    assert audit(model, qwen.PLAN, mesh=mesh).findings == []


def test_checkpoints_have_fused_names() -> None:
    full = qwen.QwenForCausalLM(replace(QWEN, merge_qkv=False, attention_bias=True))
    fused = qwen.QwenForCausalLM(replace(QWEN, attention_bias=True))
    state = qwen_weights.checkpoint(full.state_dict())
    fused.load_state_dict(state)  # by name and shape
    ids = torch.arange(6).view(2, 3)
    torch.testing.assert_close(fused(ids), full(ids))
    other = qwen.QwenForCausalLM(replace(QWEN, merge_qkv=False, attention_bias=True))
    qwen_weights.load(other, state)
    assert torch.equal(other(ids), full(ids))


def stage(**switches: Any) -> nn.Module:
    return transformer.PipelineStage(replace(CONFIG, **switches))


@pytest.mark.parametrize(
    ("model", "split"),
    [
        (transformer.Transformer(CONFIG), True),
        (transformer.Transformer(replace(CONFIG, tie_embeddings=True)), False),
        (transformer.Transformer(replace(CONFIG, experts=2)), False),
        (stage(), False),
    ],
    ids=["plain", "tied", "moe", "stage"],
)
def test_what_switches_sequence_parallelism_off(mesh: DeviceMesh, model: Any, split: bool) -> None:
    plan = transformer.declared(model)
    assert any(isinstance(s, SequenceParallel) for s in plan.entries.values()) == split
    assert ("output_head.proj" in plan.entries) == split
    assert not any("experts" in key or "token_embedding" in key for key in plan.entries)
    assert audit(model, plan, tp=2).findings == []
    assert audit(transformer.parallelize(model, mesh), plan, mesh=mesh).findings == []
