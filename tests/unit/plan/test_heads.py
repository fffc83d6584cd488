"""Splits that cut heads, and fused weights that are split as one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fixtures.plans import qwen
from tpcheck import Plan, audit
from tpcheck.plan import heads

CONFIG = qwen.QwenConfig(
    vocab_size=48,
    hidden_size=24,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=3,
    head_dim=8,
)


def codes(config: qwen.QwenConfig, entries: dict[str, str], tp: int) -> dict[str, str]:
    """Parameter → what is said of it, of those that are wrongly placed."""
    with torch.device("meta"):
        model = qwen.QwenForCausalLM(config)
    found = audit(model, Plan(entries, whole=("*",)), tp=tp)
    said = {}
    for finding in found.findings:
        if finding.code == "wrong-placement":
            said |= {name.removeprefix("model."): finding.message for name in finding.names}
    return {name: message for name, message in said.items() if "_norm" not in name}


def test_heads_that_the_degree_does_not_divide() -> None:
    kv = codes(CONFIG, qwen.full_plan(), tp=2)
    assert set(kv) == {f"layers.{i}.self_attn.{n}_proj.weight" for i in (0, 1) for n in "kv"}
    assert "tp=2 does not divide num_key_value_heads=3" in kv["layers.0.self_attn.k_proj.weight"]
    assert codes(CONFIG, qwen.full_plan(), tp=3) == {}
    every = codes(CONFIG, qwen.full_plan(), tp=4)
    assert {name.split(".")[3] for name in every} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert "num_attention_heads=6: 48 = 6 heads of 8" in every["layers.1.self_attn.q_proj.weight"]


def test_a_gathered_output_cuts_no_head() -> None:
    gathered = {f"model.layers.*.self_attn.{n}_proj": "colwise_rep" for n in "qkv"}
    assert codes(CONFIG, gathered, tp=2) == {}


@pytest.mark.parametrize("name", ["self_attn.qkv_proj", "mlp.gate_up_proj"])
def test_fused_weights_split_as_one(name: str) -> None:
    fused = replace(CONFIG, merge_qkv=True)
    key = f"model.layers.*.{name}"
    row = {"model.layers.*.self_attn.o_proj": "rowwise", "model.layers.*.mlp.down_proj": "rowwise"}
    said = codes(fused, {key: "colwise", **row}, tp=3)
    assert "split as one" in said[f"layers.0.{name}.weight"]
    packed = codes(fused, {key: "packed_colwise", **row}, tp=3)
    assert f"layers.0.{name}.weight" not in packed
    gathered = codes(fused, {key: "colwise_rep", **row}, tp=3)
    assert f"layers.0.{name}.weight" not in gathered


class Configured(nn.Module):
    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(**fields)


def test_counts_are_read_from_several_kinds_of_configuration() -> None:
    of = heads.of_config
    assert of(nn.Linear(2, 2)) is None
    assert of(Configured(vocab_size=3)) is None
    llama = of(Configured(num_attention_heads=8, num_key_value_heads=2, hidden_size=64))
    assert llama == heads.HeadCounts(8, 2, 8, ("num_attention_heads", "num_key_value_heads"))
    titan = of(Configured(n_heads=4, n_kv_heads=None, dim=64))
    assert titan == heads.HeadCounts(4, 4, 16, ("n_heads", "n_heads"))
    assert of(Configured(n_heads=5, dim=64)) is None

    class ByLayer:
        num_attention_heads = 4

        @property
        def head_dim(self) -> int:
            raise RuntimeError("differs by layer")

    model = Configured()
    model.config = ByLayer()  # type: ignore[assignment]
    assert of(model) is None


class Attention(nn.Module):
    """Knows its heads; the model's configuration, if any, is of other heads of the same width."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, 24 // heads
        with torch.device("meta"):
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(self, name, nn.Linear(24, 24, bias=False))


@pytest.mark.parametrize("config", [None, SimpleNamespace(num_attention_heads=2, hidden_size=24)])
def test_the_innermost_counts_are_those_of_the_projection(config: Any) -> None:
    plan = {"layers.*.[qkv]_proj": "colwise", "layers.*.o_proj": "rowwise"}
    for number, cut in ((4, 0), (3, 4)):
        given = nn.ModuleDict({"layers": nn.ModuleList([Attention(number)])})
        if config is not None:
            given.config = config
        said = [finding.message for finding in audit(given, plan, tp=4).findings]
        assert len(said) == cut
        assert all(f"tp=4 does not divide num_heads={number}" in message for message in said)
