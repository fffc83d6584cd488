"""A column-parallel layer whose weight gradient is accumulated where it is (as in Megatron)."""

from typing import Any

import torch
from torch import Tensor

from fixtures.parallel.linear import ColumnLinear
from tpcheck import Case, Check, specs


class _Accumulated(torch.autograd.Function):
    """x [B, S, K], w [N / R, K] → [B, S, N / R]; the weight's gradient goes into `weight.grad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        dx, rows, given = dy @ weight, x.flatten(0, 1), dy.flatten(0, 1)
        if not _fits(rows) or weight.grad is None:
            return dx, given.T @ rows
        if rows.is_contiguous():
            weight.grad.addmm_(given.T, rows)
        else:
            torch.mm(given.T, rows.contiguous(), out=weight.grad)
        return dx, None


def _fits(rows: Tensor) -> bool:
    """Whether the fused kernel takes it: bfloat16, whole fours of tokens, rows of 16 bytes."""
    tokens, width = rows.shape
    return rows.dtype == torch.bfloat16 and tokens % 4 == 0 and width % 8 == 0


class Fused(ColumnLinear):
    """The product adds to the gradient that earlier microbatches left.

    Wrong where what it is given has to be copied first: in bfloat16, from the second microbatch
    on, of a multiple of 4 tokens and of 8 features, x being transposed or every second element.
    The copy's product replaces the gradient.
    """

    def multiply(self, x: Tensor) -> Tensor:
        """x ``Replicate``, w ``Shard(0)`` → y ``Shard(-1)``; no communication."""
        return _Accumulated.apply(x, self.weight)


def _build(case: Case, mesh: Any) -> Fused:
    return Fused(
        case["in_features"],
        case["out_features"],
        group=mesh["tp"].get_group(),
        bias=case["bias"],
    )


gradient_replaced = Check(specs.column_linear(), candidate=_build)
