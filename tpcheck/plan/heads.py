"""Splits that cut what must stay together: attention heads, and the blocks of fused weights.

Letters: A query heads, G key/value heads, D head_dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tpcheck.figures.plan import Finding
from tpcheck.figures.plan_causes import GateUpAsOne, HeadsCut, QkvAsOne
from tpcheck.placement import Shard
from tpcheck.plan.followed import Placed, Promise
from tpcheck.plan.match import Tree, join, owner_of
from tpcheck.tensors.names import generic
from tpcheck.vocabulary import Code

Cut = HeadsCut | GateUpAsOne | QkvAsOne

QUERY = {"q_proj", "wq", "query", "q", "to_q", "q_lin"}
KEY_VALUE = {"k_proj", "v_proj", "wk", "wv", "key", "value", "k", "v", "to_k", "to_v"}
OUT = {"o_proj", "wo", "out_proj", "dense", "o", "to_out", "proj"}
# What an MLP calls first, and last: by their shapes either may feed the other.
FIRST = {"up", "up_proj", "gate", "gate_proj", "fc1", "c_fc", "fc_in", "wi", "wi_0", "wi_1", "w1"}
FIRST |= {"w3", "lin1", "linear1", "dense_h_to_4h"}
LAST = {"down", "down_proj", "fc2", "fc_out", "w2", "lin2", "linear2", "dense_4h_to_h"}
# [q | k | v] and [gate | up], one after the other. `query_key_value` (BLOOM, GPT-NeoX) is not
# here: its heads are interleaved, and a contiguous split is right.
FUSED_QKV = {"qkv_proj", "wqkv", "Wqkv", "qkv", "in_proj", "c_attn"}
FUSED_GATE_UP = {"gate_up_proj", "gate_up", "w13", "up_gate_proj", "gate_up_linear"}


@dataclass(frozen=True)
class HeadCounts:
    """A, G, D as a configuration has them."""

    heads: int
    kv_heads: int
    head_dim: int
    names: tuple[str, str]  # what the configuration calls A and G


def around(tree: Tree, owner: str) -> Iterator[HeadCounts]:
    """The head counts of the modules that a projection is in, the innermost first: a tower of a
    model has a configuration of its own, and attention may know its heads without any."""
    path = owner
    while path:
        path = owner_of(path)
        for holder in (of_config(tree.modules[path]), of(tree.modules[path])):
            if holder is not None:
                yield holder


def of_config(model: nn.Module) -> HeadCounts | None:
    """The head counts in `model.config` (or `model.args`), or None where there are none."""
    config: Any = getattr(model, "config", None) or getattr(model, "args", None)
    return None if config is None else of(config)


def of(config: Any) -> HeadCounts | None:
    """The head counts among the attributes of a configuration or of an attention module."""
    if callable(getattr(config, "get_text_config", None)):
        config = config.get_text_config()
    queries = _first(config, "num_attention_heads", "n_heads", "num_heads", "n_head", "heads")
    if queries is None:
        return None
    name, heads = queries
    kv_name, kv_heads = (
        _first(config, "num_key_value_heads", "n_kv_heads", "num_kv_heads", "kv_heads") or queries
    )
    dim = _first(config, "head_dim", "dim_head")
    if dim is None:
        width = _first(config, "hidden_size", "dim", "d_model", "n_embd", "hidden", "embed_dim")
        if width is None or width[1] % heads:
            return None
        dim = ("", width[1] // heads)
    return HeadCounts(heads, kv_heads, dim[1], (name, kv_name))


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
    cut: dict[tuple[str, Cut], list[str]] = {}
    for name, placed in promise.placed.items():
        if isinstance(placed.placement, Shard) and name.endswith("weight"):
            cause = _cause(promise, name, placed)
            if cause:
                cut.setdefault((generic(name), cause), []).append(name)
    for (_, cause), names in cut.items():
        key = promise.placed[names[0]].key
        yield Finding(Code.WRONG_PLACEMENT, cause, tuple(names), key)


def _cause(promise: Promise, name: str, placed: Placed) -> Cut | None:
    owner, tensor = owner_of(name), promise.tree.parameters[name]
    counts = list(around(promise.tree, owner))
    column = placed.style.split == "column" and placed.placement == Shard(0)
    # an output that is gathered is whole again before anyone looks at heads
    if not (column and placed.style.gives == "features"):
        return None if column else _rows_cut(promise, owner, tensor, counts)
    return _fused(owner, tensor, counts) or _columns_cut(promise, owner, tensor, counts)


def _fused(owner: str, tensor: Tensor, counts: list[HeadCounts]) -> Cut | None:
    last, rows = owner.rpartition(".")[2], tensor.shape[0]
    if last in FUSED_GATE_UP:
        return GateUpAsOne(rows)
    for heads in counts if last in FUSED_QKV else ():
        q, kv = heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim
        if rows == q + 2 * kv:
            return QkvAsOne(q, kv)
    return None


def _columns_cut(
    promise: Promise, owner: str, tensor: Tensor, counts: list[HeadCounts]
) -> HeadsCut | None:
    last = owner.rpartition(".")[2]
    if last not in KEY_VALUE | QUERY:
        return None
    return _head_cut(promise.tp, tensor.shape[0], counts, of_keys=last in KEY_VALUE)


def _rows_cut(
    promise: Promise, owner: str, tensor: Tensor, counts: list[HeadCounts]
) -> HeadsCut | None:
    if owner.rpartition(".")[2] not in OUT or not _has_query(promise, owner):
        return None
    return _head_cut(promise.tp, tensor.shape[-1], counts, of_keys=False)


def _head_cut(tp: int, size: int, counts: list[HeadCounts], *, of_keys: bool) -> HeadsCut | None:
    """Judged by the innermost counts that the projection's size agrees with."""
    for heads in counts:
        count = heads.kv_heads if of_keys else heads.heads
        if count * heads.head_dim == size:
            counted = heads.names[of_keys]
            return HeadsCut(tp, counted, count, heads.head_dim, size) if count % tp else None
    return None


def _has_query(promise: Promise, owner: str) -> bool:
    parent = owner.rpartition(".")[0]
    return any(join(parent, name) in promise.tree.modules for name in QUERY)
