"""Specs of linear layers that multiply in float8, with scales of the largest numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tpcheck.budget import Budget
from tpcheck.case import Case
from tpcheck.configurations import Models
from tpcheck.spec import Spec
from tpcheck.specs import scaled
from tpcheck.specs.linear import column_linear, linear_cases, row_linear

#: Of activations and weights, which need digits; and of gradients, which need range.
NUMBERS, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
#: What one scale is for: a tensor, or each row of it along its last dim, or each block of a row;
#: "delayed" as "tensor", but that of x goes by what the forwards before have seen.
SCALING = ("tensor", "row", "delayed", "block")
#: Numbers of a block, along the last dim; the last one may be short. Those of real kernels have 32
#: (OCP Microscaling Formats, 2023) or 128: with as many here most rows would be one block.
BLOCK = 4
#: Forwards whose largest numbers a delayed scale goes by.
HISTORY = 4
#: A largest number below this one counts as this: a row of zeros has a scale, too.
SMALLEST = 1e-12


def largest(x: Tensor, scaling: str) -> Tensor:
    """x [..., K] → the largest |x|: one number, or with "row" [..., 1], or with "block" [..., K],
    where each number has that of its block."""
    if scaling == "block":
        return each(blocks(x, 0, x.shape[-1]), 0, x.shape[-1])
    return x.abs().amax(-1, keepdim=True) if scaling == "row" else x.abs().amax()


def blocks(x: Tensor, start: int, whole: int) -> Tensor:
    """x [..., K], numbers from `start` on of rows of `whole` → the largest |x| of each block of
    those [..., ⌈whole / BLOCK⌉]; 0 of one of which x has nothing."""
    after = -(-whole // BLOCK) * BLOCK - start - x.shape[-1]
    return F.pad(x.abs(), (start, after)).unflatten(-1, (-1, BLOCK)).amax(-1)


def each(of_blocks: Tensor, start: int, end: int) -> Tensor:
    """[..., blocks] → what each number from `start` to `end` has of its block."""
    return of_blocks.repeat_interleave(BLOCK, -1)[..., start:end]


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


def seen(history: Tensor, amax: Tensor) -> Tensor:
    """A history [L], the latest first, with one more number [] in place of the oldest."""
    return torch.cat([amax.reshape(1).to(history.dtype), history[:-1]])


class _Cast(torch.autograd.Function):
    """Forward `cast`; the gradient passes as it is."""

    @staticmethod
    def forward(x: Tensor, amax: Tensor) -> Tensor:
        return cast(x, amax, NUMBERS)

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

    With "delayed" x has the scale of the largest number in `amax_history` [L], which a forward in
    training adds its own to (Micikevicius et al., 2022, section 4); what is larger is cut off.

    Args:
        scaling: one of `SCALING`, of x and W along K and of the gradient along N.
    """

    bias: nn.Parameter | None
    amax_history: Tensor

    def __init__(
        self, in_features: int, out_features: int, *, scaling: str, bias: bool = True
    ) -> None:
        super().__init__()
        self.scaling = scaling
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        own = nn.Parameter(torch.randn(out_features)) if bias else None
        self.register_parameter("bias", own)
        if scaling == "delayed":
            self.register_buffer("amax_history", torch.ones(HISTORY))

    def forward(self, x: Tensor) -> Tensor:
        how, weight = self.scaling, self.weight
        x8 = _Cast.apply(x, self.largest_of_input(x.detach()))
        product = F.linear(x8, _Cast.apply(weight, largest(weight.detach(), how)))
        y: Tensor = _CastGradient.apply(product, how)
        return y if self.bias is None else y + self.bias

    def largest_of_input(self, x: Tensor) -> Tensor:
        """That of x, or with "delayed" of the forwards before."""
        amax = largest(x, self.scaling)
        if self.scaling != "delayed":
            return amax
        before = self.amax_history.amax()
        if self.training:
            self.amax_history.copy_(seen(self.amax_history, amax))
        return before


def float8_column_linear(
    *, sequence_parallel: bool = False, even: bool = False, models: Models = ()
) -> Spec:
    """Column-parallel linear in float8: x `Replicate` (`Shard(1)` under SP), weight sharded along
    its outputs → y `Shard(-1)`.

    Scales are of whole tensors, so that the numbers are those of one device: of a weight, and of a
    gradient of y, that is cut, the largest number is taken over the ranks.

    Dims: those of `column_linear`, and `scaling`, one of `SCALING`. Parameters: `weight` [N, K],
    `bias` [N]; with "delayed" the buffer `amax_history`, which holds the largest numbers of whole
    tensors, too. In the budget each such number is summed once more.
    """
    sizes = scaled.among("column", models, even=even)
    plain = column_linear(sequence_parallel=sequence_parallel, even=even, models=models)

    def numbers(case: Case) -> Budget:
        per_row = _per_row(case, "out_features")
        of_gradient = case["batch"] * case["seq"] * per_row if per_row else 1
        return Budget({} if per_row else {"all_reduce": 1}, {"all_reduce": of_gradient})

    def cases(space: Any) -> Any:
        return _cases(space, sequence_parallel, even, "out_features", sizes)

    return _in_float8(plain, "float8_column_linear", cases, numbers)


def float8_row_linear(
    *, sequence_parallel: bool = False, even: bool = False, models: Models = ()
) -> Spec:
    """Row-parallel linear in float8: x `Shard(-1)`, weight sharded along its inputs → y `Replicate`
    (`Shard(1)` under SP). Scales, dims and parameters as in `float8_column_linear`: here rows of x
    and of the weight are cut, too, and the gradient of y is whole.
    """
    sizes = scaled.among("row", models, even=even)
    plain = row_linear(sequence_parallel=sequence_parallel, even=even, models=models)

    def numbers(case: Case) -> Budget:
        rows = case["batch"] * case["seq"] + case["out_features"]  # of x and of the weight
        return Budget({"all_reduce": rows * _per_row(case, "in_features") or 2}, {})

    def cases(space: Any) -> Any:
        return _cases(space, sequence_parallel, even, "in_features", sizes)

    return _in_float8(plain, "float8_row_linear", cases, numbers)


def _per_row(case: Case, dim: str) -> int:
    """Largest numbers of a row of this many numbers; 0 where a whole tensor has one."""
    return {"row": 1, "block": -(-case[dim] // BLOCK)}.get(case["scaling"], 0)


def _in_float8(plain: Spec, name: str, cases: Any, numbers: Callable[[Case], Budget]) -> Spec:
    """
    Args:
        numbers: what the largest numbers that are taken over the ranks cost.
    """
    moved = plain.budget
    assert moved is not None, plain.name

    def budget(case: Case) -> Budget:
        return moved(case) + numbers(case)

    return replace(plain, name=name, linear=False, cases=cases, reference=_reference, budget=budget)


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
