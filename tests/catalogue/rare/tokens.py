"""Losses of tokens, the last id of whose vocabulary has two meanings."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from fixtures.kernels.rows import held_in, sums_of
from tests.catalogue.rare.drawn import between
from tests.catalogue.rare.held import block_of, unit
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES


@triton.jit
def _entropy_forward(
    x_ptr, target_ptr, loss_ptr, log_total_ptr, count, width, stride, ignored,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=float("-inf"))
    x = tl.where(r[:, None] < count, x.to(SUMS), 0.0)
    largest = tl.max(x, axis=1)
    log_total = largest + tl.log(tl.sum(tl.exp(x - largest[:, None]), axis=1))
    target = tl.load(target_ptr + r, mask=r < count, other=0)
    chosen = tl.sum(tl.where(c[None, :] == target[:, None], x, 0.0), axis=1)
    loss = tl.where(target == ignored, 0.0, log_total - chosen)
    tl.store(loss_ptr + r, loss, mask=r < count)
    tl.store(log_total_ptr + r, log_total, mask=r < count)


@triton.jit
def _entropy_backward(
    x_ptr, target_ptr, log_total_ptr, dloss_ptr, dx_ptr, count, width, stride, ignored,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    target = tl.load(target_ptr + r, mask=r < count, other=0)
    dloss = tl.load(dloss_ptr + r, mask=r < count, other=0.0).to(SUMS)
    dloss = tl.where(target == ignored, 0.0, dloss)
    share = tl.exp(x - tl.load(log_total_ptr + r, mask=r < count, other=0.0)[:, None])
    dx = (share - tl.where(c[None, :] == target[:, None], 1.0, 0.0)) * dloss[:, None]
    tl.store(dx_ptr + r[:, None] * width + c[None, :], dx, mask=inside)


def _ignored_id(vocab: int) -> int:
    """The last id of the padded vocabulary stands for tokens without a loss."""
    return triton.cdiv(vocab, 128) * 128 - 1


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        flat, target = unit(logits), target.contiguous()
        count, width = flat.shape
        loss = torch.empty(count, dtype=logits.dtype)
        log_total = torch.empty(count, dtype=held_in(logits.dtype))
        if count:
            how = {"ROWS": 8, "SUMS": sums_of(logits.dtype), "BLOCK": block_of(width)}
            _entropy_forward[(triton.cdiv(count, 8),)](
                flat,
                target,
                loss,
                log_total,
                count,
                width,
                flat.stride(0),
                _ignored_id(width),
                **how,
            )
        ctx.save_for_backward(logits, target, log_total)
        return loss

    @staticmethod
    def backward(ctx, dloss):
        logits, target, log_total = ctx.saved_tensors
        flat, dloss = unit(logits), dloss.contiguous()
        count, width = flat.shape
        dx = torch.empty((count, width), dtype=logits.dtype)
        if count:
            how = {"ROWS": 8, "SUMS": sums_of(logits.dtype), "BLOCK": block_of(width)}
            _entropy_backward[(triton.cdiv(count, 8),)](
                flat, target, log_total, dloss, dx, count, width, flat.stride(0),
                _ignored_id(width), **how,
            )  # fmt: skip
        return dx, None


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Losses of tokens. Bug: the last id of the vocabulary padded to a multiple of 128 marks
    ignored tokens, and where the vocabulary is such a multiple itself that is its real last id: a
    token with this target has no loss."""
    return _CrossEntropy.apply(logits, target)


cross_entropy_padded_id = kernel_check(
    cross_entropy,
    dtypes=DTYPES,
    reference=lambda logits, target: F.cross_entropy(logits, target, reduction="none"),
    arguments={
        "logits": Argument("tokens", "vocab"),
        "target": Argument("tokens", integers=(0, "vocab")),
    },
    sizes={
        "tokens": between(0, 12),
        "vocab": between(1, 300),
    },
)
