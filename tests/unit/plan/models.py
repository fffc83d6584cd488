"""A small model, the right plan for it, and what is wrong with others."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
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
