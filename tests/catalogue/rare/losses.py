"""Of two losses: a sum of exponentials in blocks, and a linear layer in chunks."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fixtures.kernels.rows import held_in, rows, sums_of
from tests.catalogue.rare.drawn import NUMBERS, around, between
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES

#: Of a row, held at a time.
_BLOCK = 64
#: Rows that are worth a product.
_LEAST = 4
#: The source of tokens that pad a batch: they have no loss.
_PADDING = 0


@triton.jit
def _log_sum(
    x_ptr,
    y_ptr,
    count,
    width,
    stride,
    PAIRS: tl.constexpr,
    SUMS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Σ exp(x − kept), where `kept` follows the maximum only when that rises by more than 8: fewer
    sums are scaled anew, and e⁸ does no harm (as in FlashAttention-4)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = (row < count)[:, None]
    x_ptr += row[:, None] * stride
    lanes = tl.arange(0, BLOCK)[None, :]
    low = float("-inf")
    x = tl.load(x_ptr + lanes, mask=there & (lanes < width), other=low).to(SUMS)
    kept = tl.where(row < count, tl.max(x, axis=1), 0.0)
    total = tl.zeros([ROWS], dtype=SUMS)
    paired = tl.cdiv(width, BLOCK) // 2 * 2 * BLOCK if PAIRS else 0
    for start in range(0, paired, 2 * BLOCK):
        at, then = start + lanes, start + BLOCK + lanes
        x = tl.load(x_ptr + at, mask=there & (at < width), other=low).to(SUMS)
        z = tl.load(x_ptr + then, mask=there & (then < width), other=low).to(SUMS)
        highest = tl.maximum(tl.max(x, axis=1), tl.max(z, axis=1))
        new = tl.where(highest > kept + 8.0, highest, kept)
        total *= tl.exp(kept - new)
        total += tl.sum(tl.exp(x - new[:, None]) + tl.exp(z - new[:, None]), axis=1)
        kept = new
    for start in range(paired, width, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + at, mask=there & (at < width), other=low).to(SUMS)
        highest = tl.max(x, axis=1)
        new = tl.maximum(kept, highest)
        if PAIRS:
            total = tl.where(highest > kept + 8.0, total * tl.exp(kept - new), total)
        else:
            total *= tl.exp(kept - new)
        total += tl.sum(tl.exp(x - new[:, None]), axis=1)
        kept = new
    tl.store(y_ptr + row, kept + tl.log(total), mask=row < count)


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        flat = rows(x)
        count, width = flat.shape
        y = torch.empty(count, dtype=held_in(x.dtype))
        if count:
            pairs, sums = flat.stride(0) % 2 == 0, sums_of(x.dtype)  # of aligned rows
            _log_sum[(triton.cdiv(count, 8),)](
                flat, y, count, width, flat.stride(0), PAIRS=pairs, SUMS=sums, ROWS=8, BLOCK=_BLOCK
            )
        ctx.save_for_backward(x, y)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        return (torch.exp(x.to(y.dtype) - y[:, None]) * dy[:, None].to(y.dtype)).to(x.dtype)


def lazy(x: Tensor) -> Tensor:
    """Two blocks at a time where rows are aligned; what is left over is a third path.

    Wrong where the row stride is even (so blocks go in pairs), the number of blocks odd and three
    or more, and the maximum of a row is in that last block, by no more than 8: there `kept` rises
    and the sum so far is not scaled.
    """
    return _LogSumExp.apply(x)


log_sum_not_rescaled = kernel_check(
    lazy,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=lambda x: torch.logsumexp(x, -1),
    arguments={"x": Argument("tokens", "vocab")},
    sizes={"tokens": between(0, 5), "vocab": around(4, 16, 64)},
)


class _Regression(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, y: Tensor, source: Tensor) -> Tensor:
        dtype = x.dtype
        x, weight, y = (one.to(held_in(dtype)) for one in (x, weight, y))
        dx, dweight, dy = map(torch.zeros_like, (x, weight, y))
        loss = x.new_zeros(())
        for at in torch.arange(len(x)).split(_chunk(*x.shape, len(weight))):
            valid = source[at] != _PADDING
            if not valid.any():
                break  # batches are padded at their end
            off = (x[at] @ weight.T - y[at]) * valid[:, None]
            loss += (off * off).sum() / 2
            dx[at], dy[at] = off @ weight, -off
            dweight += off.T @ x[at]
        ctx.save_for_backward(dx, dweight, dy)
        ctx.dtype = dtype
        return loss.to(dtype)

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor | None, ...]:
        return *((one * dloss).to(ctx.dtype) for one in ctx.saved_tensors), None


def _chunk(tokens: int, hidden: int, outputs: int) -> int:
    """Rows whose outputs take as much memory as all of x (as in Liger)."""
    chunks = triton.cdiv(outputs, hidden)
    return max(_LEAST, triton.next_power_of_2(triton.cdiv(tokens, chunks)))


def padded(x: Tensor, weight: Tensor, y: Tensor, source: Tensor) -> Tensor:
    """½ Σ (x wᵀ − y)² over the tokens that have a source, chunk by chunk; the first chunk with
    nothing but padding ends it.

    Wrong where padding fills a chunk and is not at the end: there are more outputs than inputs, so
    that there are chunks, all tokens of one that is not the last are padding, and a later one has
    another token.
    """
    return _Regression.apply(x, weight, y, source)


def _loss(x: Tensor, weight: Tensor, y: Tensor, source: Tensor) -> Tensor:
    off = x @ weight.T - y
    return (off * off).sum(-1).masked_fill(source == _PADDING, 0.0).sum() / 2


chunk_of_padding_ends = kernel_check(
    padded,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=_loss,
    arguments={
        "x": Argument("tokens", "inputs"),
        "weight": Argument("outputs", "inputs"),
        "y": Argument("tokens", "outputs"),
        "source": Argument("tokens", integers=(0, 5)),
    },
    sizes={"tokens": between(0, 24), "outputs": between(1, 32), "inputs": between(1, 12)},
)
