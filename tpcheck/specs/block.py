"""Specs of the pre-norm transformer block and of a stack of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tpcheck.budget import Budget
from tpcheck.case import Case
from tpcheck.placement import Entry, Layout, Replicate, Shard
from tpcheck.spec import Spec
from tpcheck.specs import reference
from tpcheck.specs.attention import attention_budget, attention_params, heads_divide
from tpcheck.specs.mlp import mlp_budget, mlp_params


def block(*, sequence_parallel: bool = False) -> Spec:
    """Pre-norm block, attention then MLP: x `Replicate` → y `Replicate` (`Shard(1)` under SP).

    Dims: `batch`, `seq`, `hidden`, `heads`, `kv_heads`, `head_dim`, `intermediate`,
    `activation`, `norm`, `bias`, `qk_norm`, `rotary`, `causal`. Parameters: `attention.*` and
    `mlp.*` as in their own specs.
    """

    def layout(case: Case) -> Layout:
        params = attention_params(case, "attention.") | mlp_params(case, "mlp.")
        return _layout(params, sequence_parallel)

    return Spec(
        name="block_sp" if sequence_parallel else "block",
        cases=lambda space: _cases(space, {}, sequence_parallel),
        reference=lambda case: reference.Block(**block_dims(case)),
        inputs=_inputs,
        layout=layout,
        budget=lambda case: block_budget(case, sequence_parallel),
        requires=heads_divide,
    )


def stack(*, sequence_parallel: bool = False, layers: tuple[int, ...] = (1, 2, 3)) -> Spec:
    """`layers` blocks in a row. Dims: a block's and `layers`. Parameters: `blocks.i.*`."""

    def cases(space: Any) -> Any:
        from hypothesis import strategies as st

        return _cases(space, {"layers": st.sampled_from(layers)}, sequence_parallel)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {}
        for i in range(case["layers"]):
            params |= attention_params(case, f"blocks.{i}.attention.")
            params |= mlp_params(case, f"blocks.{i}.mlp.")
        return _layout(params, sequence_parallel)

    return Spec(
        name="stack_sp" if sequence_parallel else "stack",
        cases=cases,
        reference=lambda case: reference.Stack(case["layers"], **block_dims(case)),
        inputs=_inputs,
        layout=layout,
        budget=lambda case: block_budget(case, sequence_parallel) * case["layers"],
        requires=heads_divide,
    )


def block_budget(case: Case, sequence_parallel: bool) -> Budget:
    """Two all-reduces forward and two backward for TP; for TP + SP two all-gathers and two
    reduce-scatters each way, and the all-gathers of a backward that saved only its shard."""
    return attention_budget(case, sequence_parallel) + mlp_budget(case, sequence_parallel)


def block_dims(case: Case) -> reference.BlockDims:
    """The arguments of a block, as the case has them."""
    return reference.BlockDims(
        hidden=case["hidden"],
        heads=case["heads"],
        kv_heads=case["kv_heads"],
        head_dim=case["head_dim"],
        intermediate=case["intermediate"],
        activation=case["activation"],
        norm=case["norm"],
        bias=case["bias"],
        qk_norm=case["qk_norm"],
        rotary=case["rotary"],
        causal=case["causal"],
    )


def _layout(params: dict[str, Entry], sequence_parallel: bool) -> Layout:
    activations = Shard(1) if sequence_parallel else Replicate()
    return Layout(params=params, inputs={"x": activations}, outputs={"output": activations})


def _cases(space: Any, more: dict[str, Any], sequence_parallel: bool) -> Any:
    from hypothesis import strategies as st

    from tpcheck import strategies

    return strategies.cases(
        space,
        {
            **more,
            "batch": st.integers(1, 2),
            "seq": strategies.multiples("tp", most=2)
            if sequence_parallel
            else strategies.sizes(1, 4),
            "hidden": strategies.sizes(2, 8),
            "counts": strategies.head_counts,
            "heads": lambda d: d["counts"][0],
            "kv_heads": lambda d: d.pop("counts")[1],
            "head_dim": st.sampled_from([2, 4]),
            "intermediate": strategies.multiples("tp", most=2),
            "activation": st.sampled_from(["gelu", "swiglu"]),
            "norm": st.sampled_from(["layer", "rms"]),
            "bias": st.booleans(),
            "qk_norm": st.booleans(),
            "rotary": st.booleans(),
            "causal": st.booleans(),
        },
    )


def _inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
    return {"x": draw("x", case["batch"], case["seq"], case["hidden"])}  # [B, S, H]
