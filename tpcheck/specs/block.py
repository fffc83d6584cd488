"""Specs of the pre-norm transformer block and of a stack of them."""

from __future__ import annotations

from typing import Any, cast

from tpcheck.budget import Budget
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Entry
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.attention import (
    attention_budget,
    attention_flags,
    attention_params,
    head_dims,
    heads_divide,
)
from tpcheck.specs.mlp import mlp_budget, mlp_params
from tpcheck.specs.tokens import dropped, stream_layout, token_dims, tokens_of


def block(
    *, sequence_parallel: bool = False, dropout: tuple[float, ...] = (), models: Models = ()
) -> Spec:
    """Pre-norm block, attention then MLP: x `Replicate` → y `Replicate` (`Shard(1)` under SP).

    Dims: `batch`, `seq`, `hidden`, `heads`, `kv_heads`, `head_dim`, `intermediate`,
    `activation`, `norm`, `bias`, `qk_norm`, `rotary`, `causal`. Parameters: `attention.*` and
    `mlp.*` as in their own specs. Under `models`, only their sizes (`specs/scaled`). With rates
    of `dropout`, the dim `dropout`, as in their own specs.
    """
    sizes = scaled.among("block", models)

    def layout(case: Case) -> Layout:
        params = attention_params(case, "attention.") | mlp_params(case, "mlp.")
        return stream_layout(params, sequence_parallel)

    return Spec(
        name="block_sp" if sequence_parallel else "block",
        modes=MODES[1:],
        cases=lambda space: _cases(space, dropped(dropout), sequence_parallel, sizes),
        reference=lambda case: reference.Block(**block_dims(case)),
        inputs=tokens_of("hidden"),
        layout=layout,
        budget=lambda case: block_budget(case, sequence_parallel),
        requires=heads_divide,
    )


def stack(
    *,
    sequence_parallel: bool = False,
    layers: tuple[int, ...] = (1, 2, 3),
    dropout: tuple[float, ...] = (),
    models: Models = (),
) -> Spec:
    """`layers` blocks in a row. Dims: a block's and `layers`. Parameters: `blocks.i.*`. Under
    `models`, only their sizes (`specs/scaled`), but for `layers`. `dropout` as in a block."""
    sizes = scaled.among("block", models)

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        more = {"layers": st.sampled_from(layers)} | dropped(dropout)
        return _cases(space, more, sequence_parallel, sizes)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {}
        for i in range(case["layers"]):
            params |= attention_params(case, f"blocks.{i}.attention.")
            params |= mlp_params(case, f"blocks.{i}.mlp.")
        return stream_layout(params, sequence_parallel)

    return Spec(
        name="stack_sp" if sequence_parallel else "stack",
        modes=MODES[1:],
        cases=cases,
        reference=lambda case: reference.Stack(case["layers"], **block_dims(case)),
        inputs=tokens_of("hidden"),
        layout=layout,
        budget=lambda case: block_budget(case, sequence_parallel) * case["layers"],
        requires=heads_divide,
    )


def block_budget(case: Case, sequence_parallel: bool) -> Budget:
    """Two all-reduces forward and two backward for TP; for TP + SP two all-gathers and two
    reduce-scatters each way, and the all-gathers of a backward that saved only its shard."""
    return attention_budget(case, sequence_parallel) + mlp_budget(case, sequence_parallel)


def block_dims(case: Case) -> reference.BlockDims:
    """The arguments of a block, as the case has them; `dropout` where it has that."""
    names = reference.BlockDims.__annotations__.keys() - {"dropout"}
    dims = {name: case[name] for name in names}
    if "dropout" in case.dims:
        dims["dropout"] = case["dropout"]
    return cast(reference.BlockDims, dims)


def _cases(
    space: Any, more: dict[str, Any], sequence_parallel: bool, sizes: scaled.Among | None
) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    own = {
        "intermediate": strategies.multiples("tp", most=2),
        "activation": st.sampled_from(["gelu", "swiglu"]),
        "norm": st.sampled_from(["layer", "rms"]),
        "bias": st.booleans(),
    }
    dims = more | token_dims(sequence_parallel, batch=2, seq=4) | head_dims(sizes)
    return strategies.cases(space, dims | own | attention_flags(), among=sizes)
