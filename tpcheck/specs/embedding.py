"""Spec of the vocabulary-parallel embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tpcheck.budget import linear_out
from tpcheck.case import Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Replicate, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.edges import edge_ids
from tpcheck.specs.tokens import residual_stream, token_dims


def embedding(*, sequence_parallel: bool = False, even: bool = False, models: Models = ()) -> Spec:
    """Embedding sharded along the vocabulary: ids `Replicate` → y `Replicate` (under SP
    `Shard(1)`).

    Dims: `batch`, `seq`, `vocab` (odd ones too, unless `even`), `hidden`. Parameter: `weight`
    [V, H] `Shard(0)`. Every case looks up the first and the last row of each rank's range, where
    a range that is off by one shows. Under `models`, only their sizes (`specs/scaled`).
    """
    sizes = scaled.among("embedding", models, even=even)

    def cases(space: Any) -> Any:
        from tpcheck import strategies

        some = strategies.multiples("tp", most=4) if even else strategies.at_least("tp", 17)
        tokens = token_dims(sequence_parallel, batch=3, seq=6, parts=3)
        dims = tokens | {"vocab": some, "hidden": strategies.sizes(1, 6)}
        return strategies.cases(space, dims, among=sizes)

    def layout(case: Case) -> Layout:
        return Layout(
            params={"weight": Shard(0)},
            inputs={"ids": Replicate()},
            outputs={"output": residual_stream(sequence_parallel)},
        )

    return Spec(
        name="embedding_sp" if sequence_parallel else "embedding",
        modes=("eval", "frozen", "inference"),
        linear=True,
        cases=cases,
        reference=lambda case: reference.Embedding(case["vocab"], case["hidden"]),
        inputs=_tokens,
        layout=layout,
        budget=lambda case: linear_out(
            case["batch"] * case["seq"] * case["hidden"], sequence_parallel=sequence_parallel
        ),
    )


def _tokens(case: Case, draw: Any) -> Mapping[str, Tensor]:
    return {"ids": edge_ids("ids", case, draw, case["vocab"])}
