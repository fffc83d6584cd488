"""Spec of an embedding and an output head that are one weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tpcheck.budget import Budget, linear_in, linear_out
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Replicate, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.edges import edge_ids
from tpcheck.specs.tokens import token_dims


class TiedEmbedding(nn.Module):
    """ids [B, S], x [B, S, H] → logits [B, S, V] of x plus the rows of the ids. Parameters:
    ``embedding.weight`` [V, H], and the same one as ``head.weight``."""

    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.embedding = reference.Embedding(vocab, hidden)
        self.head = reference.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(ids) + x)
        return logits


def tied_embedding(
    *,
    gathered: bool = False,
    sequence_parallel: bool = False,
    even: bool = False,
    models: Models = (),
) -> Spec:
    """An embedding and a head of one weight [V, H], `Shard(0)`, whose gradient comes from both
    uses: ids and x `Replicate` (x `Shard(1)` under SP) → logits `Shard(2)`, or `Replicate` where
    they are `gathered`.

    x stands for what the layers between the two add to the residual stream. The candidate has the
    weight under both names of `TiedEmbedding`, as a tied module has in torch.

    Dims: `batch`, `seq`, `hidden`, `vocab` (odd ones too, sharded as `torch.chunk` splits, unless
    `even`). Every case looks up the first and the last id of each rank's range. Under `models`,
    only their sizes (`specs/scaled`).
    """
    sizes = scaled.among("embedding", models, even=even)
    stream = Shard(1) if sequence_parallel else Replicate()

    def cases(space: Any) -> Any:
        from tpcheck import strategies

        some = strategies.multiples("tp", most=4) if even else strategies.at_least("tp", 17)
        tokens = token_dims(sequence_parallel, batch=3, parts=3)
        dims = tokens | {"vocab": some, "hidden": strategies.sizes(1, 6)}
        return strategies.cases(space, dims, among=sizes)

    def inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
        ids = edge_ids("ids", case, draw, case["vocab"])
        return {"ids": ids, "x": draw("x", case["batch"], case["seq"], case["hidden"])}

    def budget(case: Case) -> Budget:
        tokens, padded = case["batch"] * case["seq"], -(-case["vocab"] // case.tp) * case.tp
        width = tokens * case["hidden"]
        looked_up = linear_out(width, sequence_parallel=sequence_parallel)
        projected = linear_in(width, sequence_parallel=sequence_parallel)
        return looked_up + projected + Budget({"all_gather": tokens * padded * gathered}, {})

    return Spec(
        name="_".join(["tied_embedding", *["gathered"] * gathered, *["sp"] * sequence_parallel]),
        modes=MODES[1:],
        cases=cases,
        reference=lambda case: TiedEmbedding(case["vocab"], case["hidden"]),
        inputs=inputs,
        layout=lambda case: Layout(
            params={"embedding.weight": Shard(0), "head.weight": Shard(0)},
            inputs={"ids": Replicate(), "x": stream},
            outputs={"output": Replicate() if gathered else Shard(2)},
        ),
        budget=budget,
    )
