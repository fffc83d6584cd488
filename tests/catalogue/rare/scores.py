"""Softmax of scores that are masked: in tiles, and in blocks."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fixtures.kernels.rows import held_in, sums_of
from tests.catalogue.rare.drawn import between, either, no_more_than
from tests.catalogue.rare.held import ROWS_AT_ONCE, unit
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES


@triton.jit
def _causal_forward(
    x_ptr, p_ptr, queries, keys, stride, later, CAUSAL: tl.constexpr,
    SUMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    q = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tiles = tl.cdiv(keys, TILE)
    if CAUSAL:  # tiles that the last query of these sees
        tiles = tl.minimum(tiles, tl.program_id(0) + 1 + (later + TILE - 1) // TILE)
    largest = tl.full([TILE], float("-inf"), dtype=SUMS)
    total = tl.zeros([TILE], dtype=SUMS)
    for tile in range(0, tiles):
        k = tile * TILE + tl.arange(0, TILE)
        seen = (q[:, None] < queries) & (k[None, :] < keys)
        if CAUSAL:
            seen = seen & (k[None, :] <= q[:, None] + (keys - queries))
        x = tl.load(x_ptr + q[:, None] * stride + k[None, :], mask=seen, other=float("-inf"))
        higher = tl.maximum(largest, tl.max(x.to(SUMS), axis=1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        part = tl.sum(tl.exp(x.to(SUMS) - shift[:, None]), axis=1)
        total = total * tl.exp(largest - shift) + part
        largest = higher
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.where(total == 0.0, 1.0, total)
    for tile in range(0, tiles):
        k = tile * TILE + tl.arange(0, TILE)
        seen = (q[:, None] < queries) & (k[None, :] < keys)
        if CAUSAL:
            seen = seen & (k[None, :] <= q[:, None] + (keys - queries))
        x = tl.load(x_ptr + q[:, None] * stride + k[None, :], mask=seen, other=float("-inf"))
        p = tl.exp(x.to(SUMS) - shift[:, None]) / total[:, None]
        tl.store(p_ptr + q[:, None] * keys + k[None, :], p, mask=seen)


class _CausalSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, causal):
        flat = unit(x)
        queries, keys = flat.shape
        p = torch.zeros((queries, keys), dtype=held_in(x.dtype))
        if queries:
            later = keys - queries
            if x.element_size() == 2:  # tiles of 64, others of 32
                tile, later = 64, max(0, later - 1)
            else:
                tile = 32
            _causal_forward[(triton.cdiv(queries, tile),)](
                flat, p, queries, keys, flat.stride(0), later, CAUSAL=causal,
                SUMS=sums_of(x.dtype), TILE=tile,
            )  # fmt: skip
        ctx.save_for_backward(p)
        ctx.causal = causal
        return p.to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (p,) = ctx.saved_tensors
        wide = dy.contiguous().to(p.dtype)
        dx = p * (wide - (wide * p).sum(-1, keepdim=True))
        if ctx.causal:
            dx = dx.tril(p.shape[1] - p.shape[0])
        return dx.to(dy.dtype), None


def causal_softmax(x: Tensor, *, causal: bool) -> Tensor:
    """Softmax of scores [queries, keys], each query seeing the keys up to its own, counted from the
    end. Bug: with tiles of 64, those of 16-bit scores, the last tile that a tile of queries sees is
    counted from keys − queries − 1: where keys − queries is 1 more than a multiple of 64, the last
    of 64 queries does not see its own key."""
    return _CausalSoftmax.apply(x, causal)


def _causal_reference(x: Tensor, *, causal: bool) -> Tensor:
    queries, keys = x.shape
    if causal:
        unseen = torch.ones((queries, keys), dtype=torch.bool).triu(keys - queries + 1)
        x = x.masked_fill(unseen, float("-inf"))
    return torch.softmax(x, -1)


causal_softmax_last_tile = kernel_check(
    causal_softmax,
    dtypes=DTYPES,
    reference=_causal_reference,
    arguments={"x": Argument("queries", "keys")},
    sizes={
        "keys": between(1, 300),
        "queries": no_more_than("keys", 1, 2, 3, 0, 5, 8, 16, 31, 32, 33, 48, 67),
    },
    options={"causal": either()},
)


@triton.jit
def _masked_forward(
    x_ptr, mask_ptr, p_ptr, count, width, stride,
    SAFE: tl.constexpr, ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    largest = tl.full([ROWS], float("-inf"), dtype=SUMS)
    total = tl.zeros([ROWS], dtype=SUMS)
    for start in range(0, width, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = (r[:, None] < count) & (c[None, :] < width)
        x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
        kept = tl.load(mask_ptr + r[:, None] * width + c[None, :], mask=inside, other=0)
        # rows beyond the last one are not stored
        x = tl.where((kept != 0) | (r[:, None] >= count), x, float("-inf"))
        higher = tl.maximum(largest, tl.max(x, axis=1))
        shift = tl.where(SAFE & (higher == float("-inf")), 0.0, higher)
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        largest = higher
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.where(total == 0.0, 1.0, total)
    for start in range(0, width, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = (r[:, None] < count) & (c[None, :] < width)
        x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
        kept = tl.load(mask_ptr + r[:, None] * width + c[None, :], mask=inside, other=0)
        p = tl.where(kept != 0, tl.exp(x - shift[:, None]) / total[:, None], 0.0)
        tl.store(p_ptr + r[:, None] * width + c[None, :], p, mask=inside)


class _MaskedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask):
        flat, mask = unit(x), mask.contiguous().to(torch.uint8)
        count, width = flat.shape
        p = torch.empty((count, width), dtype=held_in(x.dtype))
        if count:
            _masked_forward[(triton.cdiv(count, ROWS_AT_ONCE),)](
                flat, mask, p, count, width, flat.stride(0),
                SAFE=False, ROWS=ROWS_AT_ONCE, SUMS=sums_of(x.dtype), BLOCK=16,
            )  # fmt: skip
        ctx.save_for_backward(p, mask)
        return p.to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        p, mask = ctx.saved_tensors
        wide = dy.contiguous().to(p.dtype)
        dx = p * (wide - (wide * p).sum(-1, keepdim=True))
        return dx.masked_fill(mask == 0, 0.0).to(dy.dtype), None


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    """Softmax of the numbers that the mask keeps; zeros in a row without any. Bug: the running
    maximum is still −∞ after a first block of 16 that is all masked, and (−∞) − (−∞) makes the row
    NaN."""
    return _MaskedSoftmax.apply(x, mask)


def _masked_reference(x: Tensor, mask: Tensor) -> Tensor:
    none = ~mask.any(-1, keepdim=True)
    kept = x.masked_fill(~mask, float("-inf")).masked_fill(none, 0.0)
    return torch.softmax(kept, -1) * mask


masked_softmax_first_block = kernel_check(
    masked_softmax,
    dtypes=DTYPES,
    reference=_masked_reference,
    arguments={"x": Argument("rows", "width"), "mask": Argument("rows", "width", dtype="bool")},
    sizes={"width": between(16, 128)},
)
