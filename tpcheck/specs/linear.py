"""Specs of column- and row-parallel linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import Case
from tpcheck.placement import Entry, Layout, Replicate, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference


def column_linear(
    *, transposed: bool = False, sequence_parallel: bool = False, even: bool = False
) -> Spec:
    """Column-parallel linear: x `Replicate` (`Shard(1)` under SP), weight cut along its outputs →
    y `Shard(-1)`.

    Dims: `batch`, `seq`, `in_features`, `out_features` (odd sizes too, cut as `torch.chunk`
    does, unless `even`), `bias`. Parameters: `weight` [N, K] (`transposed`: [K, N]), `bias` [N].
    """

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        wide = strategies.multiples("tp") if even else strategies.at_least("tp", 13)
        seq = strategies.multiples("tp") if sequence_parallel else strategies.sizes(1, 5)
        return strategies.cases(
            space,
            {
                "batch": st.integers(1, 3),
                "seq": seq,
                "in_features": strategies.sizes(),
                "out_features": wide,
                "bias": st.booleans(),
            },
        )

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {"weight": Shard(1 if transposed else 0)}
        if case["bias"]:
            params["bias"] = Shard(0)
        return Layout(
            params=params,
            inputs={"x": Shard(1) if sequence_parallel else Replicate()},
            outputs={"output": Shard(2)},
        )

    return Spec(
        name="column_linear",
        linear=True,
        cases=cases,
        reference=lambda case: _linear(case, transposed),
        inputs=_inputs,
        layout=layout,
        budget=lambda case: linear_in(
            case["batch"] * case["seq"] * case["in_features"], sequence_parallel=sequence_parallel
        ),
    )


def row_linear(
    *, transposed: bool = False, sequence_parallel: bool = False, even: bool = False
) -> Spec:
    """Row-parallel linear: x `Shard(-1)`, weight cut along its inputs → y `Replicate`
    (`Shard(1)` under SP). The bias is replicated and added once.

    Dims: as `column_linear`. Parameters: `weight` [N, K] (`transposed`: [K, N]), `bias` [N].
    """

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        deep = strategies.multiples("tp") if even else strategies.at_least("tp", 13)
        seq = strategies.multiples("tp") if sequence_parallel else strategies.sizes(1, 5)
        return strategies.cases(
            space,
            {
                "batch": st.integers(1, 3),
                "seq": seq,
                "in_features": deep,
                "out_features": strategies.sizes(),
                "bias": st.booleans(),
            },
        )

    def layout(case: Case) -> Layout:
        return Layout(
            params={"weight": Shard(0 if transposed else 1)},
            inputs={"x": Shard(2)},
            outputs={"output": Shard(1) if sequence_parallel else Replicate()},
        )

    def budget(case: Case) -> Budget:
        out = case["batch"] * case["seq"] * case["out_features"]
        bias = case["out_features"] if case["bias"] and sequence_parallel else 0
        moved = linear_out(out, sequence_parallel=sequence_parallel)
        return moved + summed_gradients(bias)

    return Spec(
        name="row_linear",
        linear=True,
        cases=cases,
        reference=lambda case: _linear(case, transposed),
        inputs=_inputs,
        layout=layout,
        budget=budget,
    )


def _linear(case: Case, transposed: bool) -> reference.Linear:
    return reference.Linear(
        case["in_features"], case["out_features"], bias=case["bias"], transposed=transposed
    )


def _inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
    return {"x": draw("x", case["batch"], case["seq"], case["in_features"])}  # [B, S, K]
