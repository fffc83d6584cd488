"""Attention over a window, with a learned bias for each distance."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fixtures.kernels.rows import held_in, sums_of
from tests.catalogue.rare.drawn import NUMBERS, between, one_of
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES

#: Queries, and keys, of a tile.
_BLOCK = 16


@triton.jit
def _window(
    q_ptr,
    k_ptr,
    v_ptr,
    bias_ptr,
    y_ptr,
    length,
    width,
    window,
    SCALE: tl.constexpr,
    EVEN: tl.constexpr,
    SUMS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(0) * BLOCK
    mine = first + tl.arange(0, BLOCK)
    lanes = tl.arange(0, DIM)[None, :]
    there = (mine < length)[:, None] & (lanes < width)
    q = tl.load(q_ptr + mine[:, None] * width + lanes, mask=there, other=0.0).to(SUMS) * SCALE
    highest = tl.full([BLOCK], float("-inf"), dtype=SUMS)
    total = tl.zeros([BLOCK], dtype=SUMS)
    y = tl.zeros([BLOCK, DIM], dtype=SUMS)
    lowest = tl.maximum(first - window + 1, 0) // BLOCK * BLOCK
    for start in range(lowest, first + BLOCK, BLOCK):
        theirs = start + tl.arange(0, BLOCK)
        held = (theirs < length)[:, None] & (lanes < width)
        k = tl.load(k_ptr + theirs[:, None] * width + lanes, mask=held, other=0.0).to(SUMS)
        v = tl.load(v_ptr + theirs[:, None] * width + lanes, mask=held, other=0.0).to(SUMS)
        apart = mine[:, None] - theirs[None, :]
        score = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        if EVEN and start + BLOCK <= first and first + BLOCK - 1 - start <= window:
            near = tl.minimum(apart, window - 1)  # all of the tile is seen
            score += tl.load(bias_ptr + near).to(SUMS)
        else:
            seen = (apart >= 0) & (apart < window) & (theirs < length)[None, :]
            score += tl.load(bias_ptr + apart, mask=seen, other=0.0).to(SUMS)
            score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, axis=1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp(score - shift[:, None])
        fade = tl.exp(highest - shift)
        total = total * fade + tl.sum(share, axis=1)
        y = y * fade[:, None] + tl.sum(share[:, :, None] * v[None, :, :], axis=1)
        highest = higher
    y /= tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(y_ptr + mine[:, None] * width + lanes, y, mask=there)


def _plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    at, window = torch.arange(len(q)), len(bias)
    apart = at[:, None] - at
    scores = q @ k.T * q.shape[-1] ** -0.5 + bias[apart.clamp(0, window - 1)]
    hidden = (apart < 0) | (apart >= window)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def _fresh(one: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy: products of others have other last bits, by where they are in memory."""
    return one.detach().to(dtype, copy=True, memory_format=torch.contiguous_format)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        ctx.save_for_backward(*given)
        q, k, v, bias = (one.contiguous() for one in given)
        (length, width), y = q.shape, torch.empty_like(q)
        if length:
            _window[(triton.cdiv(length, _BLOCK),)](
                *(q, k, v, bias, y),
                *(length, width, len(bias)),
                SCALE=width**-0.5,
                EVEN=length % _BLOCK == 0,
                SUMS=sums_of(q.dtype),
                DIM=width,
                BLOCK=_BLOCK,
            )
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        wide = held_in(dy.dtype)
        with torch.enable_grad():
            leaves = [_fresh(one, wide).requires_grad_() for one in ctx.saved_tensors]
            found = torch.autograd.grad(_plain(*leaves), leaves, _fresh(dy, wide))
        return tuple(one.to(dy.dtype) for one in found)


def window(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Tiles that every query sees in full take no mask, where the length is a multiple of the tile.

    Wrong where it is one (`EVEN`), longer than the window, and the window reaches from the last
    query of a tile back to just after the first key of another: a window of one less than two or
    more tiles. That key is taken for seen.
    """
    return _Attention.apply(q, k, v, bias)


_TOKENS = Argument("length", "width")
tile_seen_in_full = kernel_check(
    window,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=_plain,
    arguments={"q": _TOKENS, "k": _TOKENS, "v": _TOKENS, "bias": Argument("window")},
    sizes={"length": between(0, 48), "width": one_of(2, 4, 8), "window": between(1, 48)},
)
