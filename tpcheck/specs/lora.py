"""Specs of linear layers with a low-rank adapter (LoRA), whose weight is frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpcheck.budget import Budget, linear_in, linear_out, summed_gradients
from tpcheck.case import MODES, Case
from tpcheck.configurations import Models
from tpcheck.layout import Layout
from tpcheck.placement import Entry, Shard
from tpcheck.spec import Spec
from tpcheck.specs import scaled
from tpcheck.specs.linear import linear_cases
from tpcheck.specs.tokens import residual_stream, tokens_of

#: Of the adapter's term. None is 1, so that one that is left out, or counted twice, shows.
SCALES = (0.5, 2.0, 1.25)


class Adapter(nn.Module):
    """x [..., K] → scale · (x Aᵀ) Bᵀ [..., N]. a [r, K], b [N, r]."""

    def __init__(self, in_features: int, out_features: int, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.a, self.b = _parameter(rank, in_features), _parameter(out_features, rank)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.linear(F.linear(x, self.a), self.b)


class LoRALinear(nn.Module):
    """x [..., K] → y [..., N] = x Wᵀ + bias + scale · (x Aᵀ) Bᵀ (Hu et al., "LoRA: Low-Rank
    Adaptation of Large Language Models", 2021, eq. 3). weight W [N, K] and bias [N] take no
    gradient; adapter.a A [r, K], adapter.b B [N, r].

    Args:
        merged: the same by one product, with W + scale · B A.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rank: int,
        *,
        scale: float,
        merged: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.merged = merged
        self.weight = _parameter(out_features, in_features, trained=False)
        self.register_parameter("bias", _parameter(out_features, trained=False) if bias else None)
        self.adapter = Adapter(in_features, out_features, rank, scale)

    def forward(self, x: Tensor) -> Tensor:
        if self.merged:
            added = self.adapter.scale * (self.adapter.b @ self.adapter.a)
            return F.linear(x, self.weight + added, self.bias)
        return F.linear(x, self.weight, self.bias) + self.adapter(x)


def _parameter(*shape: int, trained: bool = True) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5, requires_grad=trained)


def lora_column_linear(
    *, sequence_parallel: bool = False, even: bool = False, models: Models = ()
) -> Spec:
    """Column-parallel linear with an adapter: x `Replicate` (`Shard(1)` under SP), weight and
    the adapter's b sharded along their outputs, its a replicated → y `Shard(-1)`.

    Dims: `batch`, `seq`, `in_features`, `out_features` (odd sizes too, unless `even`), `rank` of
    the adapter, `scale`, `merged`, `bias`. Parameters: `weight` [N, K] and `bias` [N], which are
    frozen, `adapter.a` [r, K], `adapter.b` [N, r]: under other names a candidate needs a spec of
    its own. The budget is that of one all-reduce of the gradient of `adapter.a`.
    """
    sizes = scaled.among("column", models, even=even)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {"weight": Shard(0), "adapter.b": Shard(0)}
        if case["bias"]:
            params["bias"] = Shard(0)
        return Layout(
            params=params,
            inputs={"x": residual_stream(sequence_parallel)},
            outputs={"output": Shard(2)},
        )

    def budget(case: Case) -> Budget:
        tokens = case["batch"] * case["seq"]
        entered = linear_in(tokens * case["in_features"], sequence_parallel=sequence_parallel)
        return entered + summed_gradients(case["rank"] * case["in_features"])

    return Spec(
        name="lora_column_linear",
        modes=MODES[1:],
        cases=lambda space: _cases(space, sequence_parallel, even, "out_features", sizes),
        reference=_reference,
        inputs=tokens_of("in_features"),
        layout=layout,
        budget=budget,
    )


def lora_row_linear(
    *, sequence_parallel: bool = False, even: bool = False, models: Models = ()
) -> Spec:
    """Row-parallel linear with an adapter: x `Shard(-1)`, weight and the adapter's a sharded along
    their inputs, its b replicated → y `Replicate` (`Shard(1)` under SP).

    Dims and parameters: as `lora_column_linear`.
    """
    sizes = scaled.among("row", models, even=even)

    def layout(case: Case) -> Layout:
        return Layout(
            params={"weight": Shard(1), "adapter.a": Shard(1)},
            inputs={"x": Shard(2)},
            outputs={"output": residual_stream(sequence_parallel)},
        )

    def budget(case: Case) -> Budget:
        out = case["batch"] * case["seq"] * case["out_features"]
        left = linear_out(out, sequence_parallel=sequence_parallel)
        return left + summed_gradients(case["rank"] * case["out_features"])

    return Spec(
        name="lora_row_linear",
        modes=MODES[1:],
        cases=lambda space: _cases(space, sequence_parallel, even, "in_features", sizes),
        reference=_reference,
        inputs=tokens_of("in_features"),
        layout=layout,
        budget=budget,
    )


def _cases(
    space: Any, sequence_parallel: bool, even: bool, sharded: str, sizes: scaled.Among | None
) -> Any:
    """Cases whose dim `sharded` the ranks share."""
    from hypothesis import strategies as st

    more = {
        "rank": st.integers(1, 4),
        "scale": st.sampled_from(SCALES),
        "merged": st.booleans(),
    }
    return linear_cases(space, sequence_parallel, even, sharded=sharded, sizes=sizes, more=more)


def _reference(case: Case) -> LoRALinear:
    names = ("in_features", "out_features", "rank", "scale", "merged", "bias")
    return LoRALinear(**{name: case[name] for name in names})
