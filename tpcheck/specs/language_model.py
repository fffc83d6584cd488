"""Spec of a small language model that ends in its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from torch import Tensor, nn

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Entry, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.attention import (
    attention_flags,
    attention_params,
    head_dims,
    heads_divide,
)
from tpcheck.specs.block import block_budget, block_dims
from tpcheck.specs.cross_entropy import IGNORED, REDUCED, CrossEntropy, as_loss
from tpcheck.specs.edges import edge_ids, edge_targets
from tpcheck.specs.mlp import mlp_params
from tpcheck.specs.tokens import dropped, token_dims


class LanguageModel(nn.Module):
    """ids [B, S], targets [B, S] → the mean loss of the tokens whose target is not -100.

    Parameters: ``embedding.weight`` [V, H]; ``blocks.i.*``; ``norm.*``, of the blocks' kind, unless
    that is "none"; ``head.weight`` [V, H], which is the embedding's where they are ``tied``.
    """

    def __init__(
        self, vocab: int, layers: int, *, tied: bool, **dims: Unpack[reference.BlockDims]
    ) -> None:
        super().__init__()
        hidden = dims["hidden"]
        self.embedding = reference.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(reference.Block(**dims) for _ in range(layers))
        self.norm = reference.build_norm(dims.get("norm", "rms"), hidden)
        self.head = reference.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.loss = CrossEntropy(vocab, ignore_index=IGNORED)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x if self.norm is None else self.norm(x))
        loss: Tensor = self.loss(logits, targets)
        return loss


def language_model(
    *,
    sequence_parallel: bool = False,
    layers: tuple[int, ...] = (1, 2),
    tied: tuple[bool, ...] = (False, True),
    even: bool = False,
    dropout: tuple[float, ...] = (),
    models: Models = (),
) -> Spec:
    """A decoder from ids to its loss, vocabulary and layers sharded: ids, targets `Replicate` →
    loss `Replicate`. Between layers activations are `Replicate`, or `Shard(1)` under SP; logits
    `Shard(2)` (`specs.embedding`, `specs.block`, `specs.head`, `specs.cross_entropy`).

    Dims: `batch`, `seq`, `layers`, `vocab` (odd ones too, unless `even`), a block's, `tied` (the
    head is the embedding's weight), `ignored` (some tokens have no loss). Parameters as in
    `LanguageModel`; a tied weight under both names. Under `models`, only their sizes
    (`specs/scaled`), but for `layers`. With rates of `dropout`, the dim `dropout`, as in a block.
    """
    among = scaled.among("language_model", models, even=even)

    def sizes(drawn: Mapping[str, Any]) -> Sequence[scaled.Dims]:
        assert among is not None
        return [dims for dims in among(drawn) if dims["tied"] in tied]

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        some = strategies.multiples("tp", most=4) if even else strategies.at_least("tp", 17)
        dims: dict[str, Any] = {
            "layers": st.sampled_from(layers),
            **token_dims(sequence_parallel, batch=2, seq=4),
            **head_dims(among),
            "intermediate": strategies.multiples("tp", most=2),
            "activation": st.sampled_from(["gelu", "swiglu"]),
            "norm": st.sampled_from(["layer", "rms"]),
            "bias": st.booleans(),
            "vocab": some,
            "tied": st.sampled_from(tied),
            "ignored": st.booleans(),
            **dropped(dropout),
        }
        return strategies.cases(space, dims | attention_flags(), among=sizes if among else None)

    return Spec(
        name="language_model_sp" if sequence_parallel else "language_model",
        modes=("eval", "frozen", "all-frozen", "inference"),
        cases=cases,
        reference=lambda case: LanguageModel(
            case["vocab"], case["layers"], tied=case["tied"], **block_dims(case)
        ),
        inputs=_tokens,
        layout=_layout,
        forward=as_loss,
        budget=lambda case: _budget(case, sequence_parallel),
        requires=heads_divide,
    )


def _tokens(case: Case, draw: Any) -> Mapping[str, Tensor]:
    vocab = case["vocab"]
    targets = edge_targets(case, draw, vocab, ignored=IGNORED)
    return {"ids": edge_ids("ids", case, draw, vocab), "targets": targets}


def _layout(case: Case) -> Layout:
    params: dict[str, Entry] = {"embedding.weight": Shard(0), "head.weight": Shard(0)}
    for i in range(case["layers"]):
        params |= attention_params(case, f"blocks.{i}.attention.")
        params |= mlp_params(case, f"blocks.{i}.mlp.")
    return Layout(params=params)


def _budget(case: Case, sequence_parallel: bool) -> Budget:
    tokens = case["batch"] * case["seq"]
    width = tokens * case["hidden"]
    looked_up = linear_out(width, sequence_parallel=sequence_parallel)
    projected = linear_in(width, sequence_parallel=sequence_parallel)
    norm = summed_gradients(_norm_elements(case) if sequence_parallel else 0)
    loss = Budget({"all_reduce": REDUCED * tokens}, {})
    blocks = block_budget(case, sequence_parallel) * case["layers"]
    # what the parts besides the blocks save is not limited
    return replace(blocks, saved=None) + looked_up + projected + norm + loss


def _norm_elements(case: Case) -> int:
    """The gradients of the last norm, which under SP sees part of the tokens."""
    return case["hidden"] * {"none": 0, "layer": 2, "rms": 1}[case["norm"]]
