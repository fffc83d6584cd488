"""Splits that cut what must stay together: attention heads, and the blocks of fused weights.

Letters: A query heads, G key/value heads, D head_dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tpcheck.placement import Shard
from tpcheck.plan.findings import Finding, brief, generic
from tpcheck.plan.followed import Promise
from tpcheck.plan.match import Tree, join, owner_of

QUERY = {"q_proj", "wq", "query", "q", "to_q", "q_lin"}
KEY_VALUE = {"k_proj", "v_proj", "wk", "wv", "key", "value", "k", "v", "to_k", "to_v"}
OUT = {"o_proj", "wo", "out_proj", "dense", "o", "to_out", "proj"}
# [q | k | v] and [gate | up], one after the other. `query_key_value` (BLOOM, GPT-NeoX) is not
# here: its heads are interleaved, and a contiguous split is right.
FUSED_QKV = {"qkv_proj", "wqkv", "Wqkv", "qkv", "in_proj", "c_attn"}
FUSED_GATE_UP = {"gate_up_proj", "gate_up", "w13", "up_gate_proj", "gate_up_linear"}


@dataclass(frozen=True)
class Heads:
    """A, G, D as a configuration has them."""

    heads: int
    kv_heads: int
    head_dim: int
    names: tuple[str, str]  # what the configuration calls A and G


def around(tree: Tree, owner: str) -> Iterator[Heads]:
    """The head counts of the modules that a projection is in, the innermost first: a tower of a
    model has a configuration of its own, and attention may know its heads without any."""
    path = owner
    while path:
        path = owner_of(path)
        for holder in (of_config(tree.modules[path]), of(tree.modules[path])):
            if holder is not None:
                yield holder


def of_config(model: nn.Module) -> Heads | None:
    """The head counts in `model.config` (or `model.args`), or None where there are none."""
    config: Any = getattr(model, "config", None) or getattr(model, "args", None)
    return None if config is None else of(config)


def of(config: Any) -> Heads | None:
    """The head counts among the attributes of a configuration or of an attention module."""
    if callable(getattr(config, "get_text_config", None)):
        config = config.get_text_config()
    found = _first(config, "num_attention_heads", "n_heads", "num_heads", "n_head", "heads")
    if found is None:
        return None
    name, heads = found
    kv_name, kv_heads = (
        _first(config, "num_key_value_heads", "n_kv_heads", "num_kv_heads", "kv_heads") or found
    )
    dim = _first(config, "head_dim", "dim_head")
    if dim is None:
        width = _first(config, "hidden_size", "dim", "d_model", "n_embd", "hidden", "embed_dim")
        if width is None or width[1] % heads:
            return None
        dim = ("", width[1] // heads)
    return Heads(heads, kv_heads, dim[1], (name, kv_name))


def _first(config: Any, *names: str) -> tuple[str, int] | None:
    for name in names:
        try:
            value = getattr(config, name, None)
        except Exception:  # transformers raises where a number differs by layer: none is meant
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return name, value
    return None


def findings(promise: Promise) -> Iterator[Finding]:
    """Splits that cut heads or fused blocks, a finding for each kind of parameter."""
    cut: dict[tuple[str, str], list[str]] = {}
    for name, placed in promise.placed.items():
        if not isinstance(placed.placement, Shard) or not name.endswith("weight"):
            continue
        owner = owner_of(name)
        tensor = promise.tree.parameters[name]
        column = placed.style.split == "column" and placed.placement.dim == 0
        # an output that is gathered is whole again before anyone looks at heads
        open_ = column and placed.style.gives == "features"
        counts = list(around(promise.tree, owner))
        reason = (open_ and _fused(owner, tensor, counts)) or _head_cut(
            promise, owner, tensor, counts, column, open_
        )
        if reason:
            cut.setdefault((generic(name), reason), []).append(name)
    for (_, reason), names in cut.items():
        keys = {promise.placed[name].key for name in names}
        yield Finding(
            "wrong-placement", f"{brief(names)}: {reason}", tuple(names), next(iter(keys))
        )


def _fused(owner: str, tensor: Tensor, counts: list[Heads]) -> str | None:
    last, rows = owner.rpartition(".")[2], tensor.shape[0]
    if last in FUSED_GATE_UP:
        return (
            f"fused [gate | up] of {rows} rows, split as one: the first ranks get gate, the others "
            "up; unfuse it, or pack it (packed_colwise)"
        )
    for heads in counts if last in FUSED_QKV else ():
        q, kv = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim
        if rows == q + 2 * kv:
            return (
                f"fused [q | k | v] of {q} + {kv} + {kv} rows, split as one: ranks get other parts "
                "than their heads'; unfuse it into q_proj, k_proj, v_proj"
            )
    return None


def _head_cut(
    promise: Promise, owner: str, tensor: Tensor, counts: list[Heads], column: bool, open_: bool
) -> str | None:
    """Judged by the innermost counts that the projection's size agrees with."""
    last, tp = owner.rpartition(".")[2], promise.tp
    size = tensor.shape[0 if column else -1]
    if last in KEY_VALUE and open_:
        own = [(h.kv_heads, h.head_dim, h.names[1]) for h in counts]
    elif (last in QUERY and open_) or (last in OUT and not column and _has_query(promise, owner)):
        own = [(h.heads, h.head_dim, h.names[0]) for h in counts]
    else:
        return None
    fitting = [(count, d, name) for count, d, name in own if count * d == size]
    if not fitting or fitting[0][0] % tp == 0:
        return None
    count, d, name = fitting[0]
    return (
        f"tp={tp} does not divide {name}={count}: {size} = {count} heads of {d} are split into "
        f"pieces of {-(-size // tp)}, which cuts heads"
    )


def _has_query(promise: Promise, owner: str) -> bool:
    parent = owner.rpartition(".")[0]
    return any(join(parent, name) in promise.tree.modules for name in QUERY)
