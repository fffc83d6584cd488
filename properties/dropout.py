"""Dropout under tensor parallelism: ranks drop by one mask what they all have, and each by a mask
of its own what they have parts of; with and without sequence parallelism."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fixtures.parallel.dropout import (
    ByUniform,
    DroppingAttention,
    DroppingBlock,
    DroppingMLP,
    HeadsInTheBatch,
    Recomputed,
    TokensFirst,
    dropping,
)
from tpcheck import Case, Check, specs
from tpcheck.specs.block import block_dims

RATES = (0.1, 0.5)


def _of(part: Any, names: tuple[str, ...] | None, *, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> nn.Module:
        group = mesh["tp"].get_group()
        dims: dict[str, Any] = dict(block_dims(case)) if names is None else {}
        dims = dims | {name: case[name] for name in names or ()}
        dims.pop("dropout", None)
        # parameters of unlike sizes take unlike numbers from the generator that all ranks share
        with torch.random.fork_rng(devices=[]):
            module = part(**dims, group=group, sequence_parallel=sequence_parallel)
        return dropping(module, case["dropout"], group, mesh.device_type)

    return build


_MLP = ("hidden", "intermediate", "activation", "norm", "residual", "bias")
_ATTENTION = ("hidden", "heads", "kv_heads", "head_dim", "bias", "norm", "residual", "qk_norm")
_ATTENTION = (*_ATTENTION, "rotary", "causal")

mlp_dropout = Check(
    specs.mlp(dropout=RATES),
    candidate=_of(DroppingMLP, _MLP, sequence_parallel=False),
    communication=True,
    processes=True,
)
mlp_sp_dropout = Check(
    specs.mlp(sequence_parallel=True, dropout=RATES),
    candidate=_of(DroppingMLP, _MLP, sequence_parallel=True),
    communication=True,
    processes=True,
)
attention_dropout = Check(
    specs.attention(dropout=RATES),
    candidate=_of(DroppingAttention, _ATTENTION, sequence_parallel=False),
    communication=True,
    processes=True,
)
block_sp_dropout = Check(
    specs.block(sequence_parallel=True, dropout=RATES),
    candidate=_of(DroppingBlock, None, sequence_parallel=True),
    communication=True,
    processes=True,
)
mlp_sp_dropout_recomputed = replace(
    mlp_sp_dropout,
    candidate=_of(Recomputed, _MLP, sequence_parallel=True),
    communication=False,
)
mlp_dropout_by_uniform = replace(
    mlp_dropout, candidate=_of(ByUniform, _MLP, sequence_parallel=False)
)
mlp_sp_dropout_tokens_first = replace(
    mlp_sp_dropout, candidate=_of(TokensFirst, _MLP, sequence_parallel=True)
)
attention_dropout_heads_in_the_batch = replace(
    attention_dropout, candidate=_of(HeadsInTheBatch, _ATTENTION, sequence_parallel=False)
)
