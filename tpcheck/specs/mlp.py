"""Spec of the tensor-parallel MLP."""

from __future__ import annotations

from typing import Any

from torch import nn

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.placement import Entry, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference, scaled
from tpcheck.specs.saved import saved_by_a_rank
from tpcheck.specs.tokens import dropped, stream_layout, token_dims, tokens_of


def mlp(
    *, sequence_parallel: bool = False, dropout: tuple[float, ...] = (), models: Models = ()
) -> Spec:
    """MLP, column then row: x `Replicate` → y `Replicate` (both `Shard(1)` under SP).

    Dims: `batch`, `seq`, `hidden`, `intermediate` (odd ones too), `activation` ("gelu" tanh form,
    "swiglu"), `norm` ("none", "layer", "rms"), `residual`, `bias`. Parameters: `norm.*`
    replicated; `up.*`, `gate.*` `Shard(0)`; `down.weight` `Shard(1)`; `down.bias` replicated.
    With rates of `dropout`, the dim `dropout`: what `down` gives is dropped, before the residual.
    Under `models`, only their sizes (`specs/scaled`).
    """
    sizes = scaled.among("mlp", models)

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        from tpcheck import strategies

        own = {
            "hidden": strategies.sizes(2, 9),
            "intermediate": strategies.at_least("tp", 13),
            "activation": st.sampled_from(["gelu", "swiglu"]),
            "norm": st.sampled_from(["none", "layer", "rms"]),
            "residual": st.booleans(),
            "bias": st.booleans(),
        }
        dims = token_dims(sequence_parallel, batch=3) | own | dropped(dropout)
        return strategies.cases(space, dims, among=sizes)

    return Spec(
        name="mlp_sp" if sequence_parallel else "mlp",
        modes=MODES[1:],
        cases=cases,
        reference=lambda case: reference.MLP(
            case["hidden"],
            case["intermediate"],
            activation=case["activation"],
            norm=case["norm"],
            residual=case["residual"],
            bias=case["bias"],
            dropout=case.get("dropout", 0.0),
        ),
        inputs=tokens_of("hidden"),
        layout=lambda case: stream_layout(mlp_params(case), sequence_parallel),
        budget=lambda case: mlp_budget(case, sequence_parallel),
    )


def mlp_budget(case: Case, sequence_parallel: bool) -> Budget:
    """One way in, one way out; under SP the sums of the norm's and the row bias's gradients."""
    elements = case["batch"] * case["seq"] * case["hidden"]
    ways = linear_in(elements, sequence_parallel=sequence_parallel)
    ways = ways + linear_out(elements, sequence_parallel=sequence_parallel)
    vectors = {"none": 0, "rms": 1, "layer": 2}[case["norm"]] + int(case["bias"])
    partial = summed_gradients(vectors * case["hidden"] if sequence_parallel else 0)
    return ways + partial + Budget(saved=mlp_saved(case, sequence_parallel))


def mlp_saved(case: Case, sequence_parallel: bool) -> int | None:
    """What the reference keeps for backward with the intermediate size of one rank's shard."""

    def part(norm: str) -> nn.Module:
        return reference.MLP(
            case["hidden"],
            -(-case["intermediate"] // case.tp),
            activation=case["activation"],
            norm=norm,  # type: ignore[arg-type]
            bias=case["bias"],
        )

    return saved_by_a_rank(case, part, sequence_parallel)


def mlp_params(case: Case, prefix: str = "") -> dict[str, Entry]:
    """The layout of an MLP's sharded parameters; what is not named is replicated."""
    columns = ["up", *(["gate"] if case["activation"] == "swiglu" else [])]
    kinds = ["weight", *(["bias"] if case["bias"] else [])]
    out: dict[str, Entry] = {f"{prefix}{c}.{k}": Shard(0) for c in columns for k in kinds}
    return out | {f"{prefix}down.weight": Shard(1)}
