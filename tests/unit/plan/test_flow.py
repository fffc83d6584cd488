"""Embeddings and sequence-parallel norms: what one style gives is not what the next takes."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor.parallel import (
    RowwiseParallel,
    SequenceParallel,
)

from tests.unit.plan.models import (
    A,
    H,
    faults,
    model,
)


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


def test_a_sequence_norm_on_whole_activations() -> None:
    (names,) = faults(model(), {"layers.*.norm": SequenceParallel()})[:1]
    assert {"layers.0.norm", "layers.0.attn.o_proj", "layers.0.mlp.w2"} <= set(names)
    as_dtensors = RowwiseParallel(use_local_output=False)
    rows = {"layers.*.attn.o_proj": as_dtensors, "layers.*.mlp.w2": as_dtensors}
    assert faults(model(), {"layers.*.norm": SequenceParallel(), **rows}) == []
