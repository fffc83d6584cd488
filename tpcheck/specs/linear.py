"""Specs of column- and row-parallel linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Entry, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.tokens import residual_stream, token_dims, tokens_of


def column_linear(
    *,
    transposed: bool = False,
    sequence_parallel: bool = False,
    even: bool = False,
    models: Models = (),
) -> Spec:
    """Column-parallel linear: x `Replicate` (`Shard(1)` under SP), weight sharded along its
    outputs → y `Shard(-1)`.

    Dims: `batch`, `seq`, `in_features`, `out_features` (odd sizes too, sharded as `torch.chunk`
    splits, unless `even`), `bias`. Parameters: `weight` [N, K] (`transposed`: [K, N]), `bias` [N].
    Under `models`, only the sizes of their projections (`specs/scaled`).
    """
    sizes = scaled.among("column", models, even=even)

    def cases(space: Any) -> Any:
        return linear_cases(space, sequence_parallel, even, sharded="out_features", sizes=sizes)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {"weight": Shard(1 if transposed else 0)}
        if case["bias"]:
            params["bias"] = Shard(0)
        return Layout(
            params=params,
            inputs={"x": residual_stream(sequence_parallel)},
            outputs={"output": Shard(2)},
        )

    return Spec(
        name="column_linear",
        modes=MODES[1:],
        linear=True,
        cases=cases,
        reference=lambda case: _linear(case, transposed),
        inputs=tokens_of("in_features"),
        layout=layout,
        budget=lambda case: linear_in(
            case["batch"] * case["seq"] * case["in_features"], sequence_parallel=sequence_parallel
        ),
    )


def row_linear(
    *,
    transposed: bool = False,
    sequence_parallel: bool = False,
    even: bool = False,
    models: Models = (),
) -> Spec:
    """Row-parallel linear: x `Shard(-1)`, weight sharded along its inputs → y `Replicate`
    (`Shard(1)` under SP). The bias is replicated and added once.

    Dims: as `column_linear`. Parameters: `weight` [N, K] (`transposed`: [K, N]), `bias` [N].
    """
    sizes = scaled.among("row", models, even=even)

    def cases(space: Any) -> Any:
        return linear_cases(space, sequence_parallel, even, sharded="in_features", sizes=sizes)

    def layout(case: Case) -> Layout:
        return Layout(
            params={"weight": Shard(0 if transposed else 1)},
            inputs={"x": Shard(2)},
            outputs={"output": residual_stream(sequence_parallel)},
        )

    def budget(case: Case) -> Budget:
        out = case["batch"] * case["seq"] * case["out_features"]
        bias = case["out_features"] if case["bias"] and sequence_parallel else 0
        moved = linear_out(out, sequence_parallel=sequence_parallel)
        return moved + summed_gradients(bias)

    return Spec(
        name="row_linear",
        modes=MODES[1:],
        linear=True,
        cases=cases,
        reference=lambda case: _linear(case, transposed),
        inputs=tokens_of("in_features"),
        layout=layout,
        budget=budget,
    )


def linear_cases(
    space: Any,
    sequence_parallel: bool,
    even: bool,
    *,
    sharded: str,
    sizes: scaled.Among | None = None,
    more: Mapping[str, Any] | None = None,
) -> Any:
    """Cases of a linear layer whose dim `sharded` the ranks share.

    Args:
        more: dims that it has besides, with what draws them.
    """
    from hypothesis import strategies as st

    from tpcheck import strategies

    shared = strategies.multiples("tp") if even else strategies.at_least("tp", 13)
    widths = {
        name: shared if name == sharded else strategies.sizes()
        for name in ("in_features", "out_features")
    }
    tokens = token_dims(sequence_parallel, batch=3, parts=3)
    dims = tokens | widths | dict(more or {}) | {"bias": st.booleans()}
    return strategies.cases(space, dims, among=sizes)


def _linear(case: Case, transposed: bool) -> reference.Linear:
    return reference.Linear(
        case["in_features"], case["out_features"], bias=case["bias"], transposed=transposed
    )
