"""Spec of the output head of a language model."""

from __future__ import annotations

from typing import Any

from tpcheck.budget import Budget, linear_in
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Entry, Replicate, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.tokens import residual_stream, token_dims, tokens_of


def head(
    *,
    gathered: bool = False,
    sequence_parallel: bool = False,
    even: bool = False,
    models: Models = (),
) -> Spec:
    """The projection to the vocabulary: x `Replicate` (`Shard(1)` under SP) → logits `Shard(-1)`,
    or `Replicate` where they are `gathered`.

    In the words of transformers' plans that is `colwise`, whose logits go on into a loss over the
    shards (`specs.cross_entropy`), and `colwise_rep` or `colwise_gather_output`.

    Dims: `batch`, `seq`, `hidden`, `vocab` (odd ones too, sharded as `torch.chunk` splits, unless
    `even`), `bias`. Parameters: `weight` [V, H], `bias` [V], `Shard(0)`. Under `models`, only their
    sizes (`specs/scaled`).
    """
    sizes = scaled.among("embedding", models, even=even)

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        some = strategies.multiples("tp", most=4) if even else strategies.at_least("tp", 17)
        tokens = token_dims(sequence_parallel, batch=3, parts=3)
        widths = {"vocab": some, "hidden": strategies.sizes(1, 6)}
        return strategies.cases(space, tokens | widths | {"bias": st.booleans()}, among=sizes)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {"weight": Shard(0)}
        if case["bias"]:
            params["bias"] = Shard(0)
        return Layout(
            params=params,
            inputs={"x": residual_stream(sequence_parallel)},
            outputs={"output": Replicate() if gathered else Shard(2)},
        )

    def budget(case: Case) -> Budget:
        tokens, padded = case["batch"] * case["seq"], -(-case["vocab"] // case.tp) * case.tp
        moved = linear_in(tokens * case["hidden"], sequence_parallel=sequence_parallel)
        return moved + Budget({"all_gather": tokens * padded * gathered}, {})

    return Spec(
        name="head_gathered" if gathered else "head",
        modes=MODES[1:],
        linear=True,
        cases=cases,
        reference=lambda case: reference.Linear(case["hidden"], case["vocab"], bias=case["bias"]),
        inputs=tokens_of("hidden"),
        layout=layout,
        budget=budget,
    )
