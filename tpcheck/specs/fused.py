"""Specs of GEMMs fused with their collective: all-gather GEMM, GEMM reduce-scatter."""

from __future__ import annotations

from typing import Any

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Entry, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.tokens import token_dims, tokens_of


def all_gather_linear(*, models: Models = ()) -> Spec:
    """Column-parallel linear on a gathered sequence: x `Shard(1)` → y `Shard(-1)`, in the order
    of the full sequence.

    Dims: `batch`, `seq` (a multiple of R; a rank's part need not divide by `chunks`),
    `in_features`, `out_features` (a multiple of R), `bias`, `chunks`. Parameters: `weight`
    [N, K] `Shard(0)`, `bias` [N] `Shard(0)`. Under `models`, only the sizes of their projections
    (`specs/scaled`).
    """
    sizes = scaled.among("column", models, even=True)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {"weight": Shard(0)}
        if case["bias"]:
            params["bias"] = Shard(0)
        return Layout(params=params, inputs={"x": Shard(1)}, outputs={"output": Shard(2)})

    return Spec(
        name="all_gather_linear",
        modes=MODES[1:],
        linear=True,
        cases=lambda space: _cases(space, sizes),
        reference=_linear,
        inputs=tokens_of("in_features"),
        layout=layout,
        budget=lambda case: (
            linear_in(_elements(case, "in_features"), sequence_parallel=True)
            + _overlapped(case, "all_gather")
            + Budget(saved=_saved(case))
        ),
    )


def linear_reduce_scatter(*, models: Models = ()) -> Spec:
    """Row-parallel linear scattered along the sequence: x `Shard(-1)` → y `Shard(1)`.

    Dims: as `all_gather_linear` with the roles of in and out exchanged. Parameters: `weight`
    [N, K] `Shard(1)`, `bias` [N] replicated, added once.
    """
    sizes = scaled.among("row", models, even=True)

    def layout(case: Case) -> Layout:
        return Layout(
            params={"weight": Shard(1)}, inputs={"x": Shard(2)}, outputs={"output": Shard(1)}
        )

    return Spec(
        name="linear_reduce_scatter",
        modes=MODES[1:],
        linear=True,
        cases=lambda space: _cases(space, sizes),
        reference=_linear,
        inputs=tokens_of("in_features"),
        layout=layout,
        budget=lambda case: (
            linear_out(_elements(case, "out_features"), sequence_parallel=True)
            + summed_gradients(case["out_features"] if case["bias"] else 0)
            + _overlapped(case, "reduce_scatter")
        ),
    )


def _elements(case: Case, width: str) -> int:
    return int(case["batch"] * case["seq"] * case[width])


def _saved(case: Case) -> int:
    """Only the rank's own part of x, which backward gathers again; twice, for a copy of it that
    is contiguous, and as a strided view its whole storage."""
    own = _elements(case, "in_features") // case.tp
    return 2 * own if case.memory == "contiguous" else 4 * own + 4


def _overlapped(case: Case, op: str) -> Budget:
    """The witness of the fused path: more than one collective where there is more than one
    chunk. One whole collective is right in its values and overlaps nothing."""
    chunks = min(case["chunks"], case["seq"] // case.tp)
    return Budget(at_least={("forward", op): 2} if chunks > 1 and case.tp > 1 else {})


def _cases(space: Any, sizes: scaled.Among | None) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    own = {
        "in_features": strategies.multiples("tp", most=2),
        "out_features": strategies.multiples("tp", most=2),
        "bias": st.booleans(),
        "chunks": st.integers(1, 4),
    }
    dims = token_dims(True, batch=2, parts=5) | own
    return strategies.cases(space, dims, among=sizes)


def _linear(case: Case) -> reference.Linear:
    return reference.Linear(case["in_features"], case["out_features"], bias=case["bias"])
