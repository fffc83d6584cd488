"""Specs of linear layers that multiply in float8, with scales of the largest numbers."""

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

#: Of activations and weights, which need digits; and of gradients, which need range.
NUMBERS, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
#: What one scale is for: a tensor, or each row of it along its last dim.
SCALING = ("tensor", "row")
#: A largest number below this one counts as this: a row of zeros has a scale, too.
SMALLEST = 1e-12


def largest(x: Tensor, scaling: str) -> Tensor:
    """x [..., K] → the largest |x|: one number, or with "row" [..., 1]."""
    return x.abs().amax(-1, keepdim=True) if scaling == "row" else x.abs().amax()


def cast(x: Tensor, amax: Tensor, dtype: torch.dtype) -> Tensor:
    """x, as float8 holds it: x · s, cast, and divided by s again, where s · amax is the largest
    number of `dtype` (Micikevicius et al., "FP8 Formats for Deep Learning", 2022). Computed in
    float32, of float64 in float64.

    Args:
        amax: broadcasts to x.
        dtype: a float8 one.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    most = torch.finfo(dtype).max
    scale = most / amax.to(wide).clamp(min=SMALLEST)
    scaled = (x.to(wide) * scale).clamp(-most, most)
    return (scaled.to(dtype).to(wide) / scale).to(x.dtype)


class _Cast(torch.autograd.Function):
    """Forward `cast`; the gradient passes as it is."""

    @staticmethod
    def forward(x: Tensor, scaling: str) -> Tensor:
        return cast(x, largest(x, scaling), NUMBERS)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _CastGradient(torch.autograd.Function):
    """The input; its gradient is cast."""

    @staticmethod
    def forward(x: Tensor, scaling: str) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.scaling = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return cast(gradient, largest(gradient, ctx.scaling), GRADIENTS), None


class Float8Linear(nn.Module):
    """x [..., K] → y [..., N] = x₈ W₈ᵀ + bias, where x₈ and W₈ are x and W as e4m3 holds them; in
    backward the gradient of x₈ W₈ᵀ is taken as e5m2 holds it. weight W [N, K], bias [N].

    Args:
        scaling: one of `SCALING`, of x and W along K and of the gradient along N.
    """

    bias: nn.Parameter | None

    def __init__(
        self, in_features: int, out_features: int, *, scaling: str, bias: bool = True
    ) -> None:
        super().__init__()
        self.scaling = scaling
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        own = nn.Parameter(torch.randn(out_features)) if bias else None
        self.register_parameter("bias", own)

    def forward(self, x: Tensor) -> Tensor:
        how = self.scaling
        product = F.linear(_Cast.apply(x, how), _Cast.apply(self.weight, how))
        y: Tensor = _CastGradient.apply(product, how)
        return y if self.bias is None else y + self.bias


def float8_column_linear(
    *, sequence_parallel: bool = False, even: bool = False, models: Models = ()
) -> Spec:
    """Column-parallel linear in float8: x `Replicate` (`Shard(1)` under SP), weight sharded along
    its outputs → y `Shard(-1)`.

    Scales are of whole tensors, so that the numbers are those of one device: of a weight, and of a
    gradient of y, that is cut, the largest number is taken over the ranks.

    Dims: those of `column_linear`, and `scaling`, "tensor" or "row". Parameters: `weight` [N, K],
    `bias` [N]. In the budget each such number is summed once more.
    """
    sizes = scaled.among("column", models, even=even)

    def layout(case: Case) -> Layout:
        params: dict[str, Entry] = {"weight": Shard(0)}
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
        by_row = case["scaling"] == "row"
        own = _numbers(tokens if by_row else 1)  # of the gradient
        return entered + own if by_row else entered + own + _numbers(1, forward=True)

    def cases(space: Any) -> Any:
        return _cases(space, sequence_parallel, even, "out_features", sizes)

    return _spec("float8_column_linear", cases, layout, budget)


def float8_row_linear(
    *, sequence_parallel: bool = False, even: bool = False, models: Models = ()
) -> Spec:
    """Row-parallel linear in float8: x `Shard(-1)`, weight sharded along its inputs → y `Replicate`
    (`Shard(1)` under SP). Scales, dims and parameters as in `float8_column_linear`: here rows of x
    and of the weight are cut, too, and the gradient of y is whole.
    """
    sizes = scaled.among("row", models, even=even)

    def layout(case: Case) -> Layout:
        return Layout(
            params={"weight": Shard(1)},
            inputs={"x": Shard(2)},
            outputs={"output": residual_stream(sequence_parallel)},
        )

    def budget(case: Case) -> Budget:
        tokens, out = case["batch"] * case["seq"], case["out_features"]
        left = linear_out(tokens * out, sequence_parallel=sequence_parallel)
        bias = out if case["bias"] and sequence_parallel else 0
        by_row = case["scaling"] == "row"
        numbers = [_numbers(n if by_row else 1, forward=True) for n in (tokens, out)]
        return left + summed_gradients(bias) + numbers[0] + numbers[1]

    def cases(space: Any) -> Any:
        return _cases(space, sequence_parallel, even, "in_features", sizes)

    return _spec("float8_row_linear", cases, layout, budget)


def _numbers(count: int, *, forward: bool = False) -> Budget:
    """So many largest numbers, taken over the ranks."""
    maxima = {"all_reduce": count}
    return Budget(maxima, {}) if forward else Budget({}, maxima)


def _spec(name: str, cases: Any, layout: Any, budget: Any) -> Spec:
    return Spec(
        name=name,
        modes=MODES[1:],
        cases=cases,
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

    more = {"scaling": st.sampled_from(SCALING)}
    return linear_cases(space, sequence_parallel, even, sharded=sharded, sizes=sizes, more=more)


def _reference(case: Case) -> Float8Linear:
    sizes = {name: case[name] for name in ("in_features", "out_features", "scaling", "bias")}
    return Float8Linear(**sizes)
