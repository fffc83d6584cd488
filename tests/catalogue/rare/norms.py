"""Of two norms: a variance in one pass, and a gradient that is summed in parts."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fixtures.kernels.rows import WIDEST, block_of, held_in, rows, sums_of
from tests.catalogue.rare.drawn import NUMBERS, between
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES
from tpcheck.specs import reference

_EPS = 1e-5
#: Rows that fill the machine: with fewer the second read of a row comes from cache.
_MANY = 64
#: Programs that sum dweight at once.
_SPLITS = 4
#: Elements that are worth a program.
_LEAST = 256


@triton.jit
def _row_scale(
    x_ptr,
    mean_ptr,
    scale_ptr,
    count,
    width,
    stride,
    EPS: tl.constexpr,
    ONCE: tl.constexpr,
    SUMS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < count
    x_ptr += row[:, None] * stride
    lanes = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], dtype=SUMS)
    squares = tl.zeros([ROWS, BLOCK], dtype=SUMS)
    for start in range(0, width, BLOCK):
        inside = there[:, None] & (start + lanes < width)
        x = tl.load(x_ptr + start + lanes, mask=inside, other=0.0).to(SUMS)
        total += x
        if ONCE:
            squares += x * x
    mean = tl.sum(total, axis=1) / width
    if ONCE:
        variance = tl.maximum(tl.sum(squares, axis=1) / width - mean * mean, 0.0)
    else:
        for start in range(0, width, BLOCK):
            inside = there[:, None] & (start + lanes < width)
            x = tl.load(x_ptr + start + lanes, mask=inside, other=0.0).to(SUMS)
            apart = tl.where(inside, x - mean[:, None], 0.0)
            squares += apart * apart
        variance = tl.sum(squares, axis=1) / width
    tl.store(mean_ptr + row, mean, mask=there)
    tl.store(scale_ptr + row, 1.0 / tl.sqrt(variance + EPS), mask=there)


class _RowScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        flat = rows(x)
        count, width = flat.shape
        mean = torch.empty(count, dtype=held_in(x.dtype))
        scale = torch.empty_like(mean)
        if count:
            once = width > WIDEST and count > _MANY and x.dtype != torch.float64
            _row_scale[(triton.cdiv(count, 32),)](
                *(flat, mean, scale),
                *(count, width, flat.stride(0)),
                EPS=_EPS,
                ONCE=once,
                SUMS=sums_of(x.dtype),
                ROWS=32,
                BLOCK=block_of(width),
            )
        ctx.save_for_backward(x, mean, scale)
        return scale.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dscale: Tensor) -> Tensor:
        x, mean, scale = ctx.saved_tensors
        along = -(scale**3) * dscale.to(scale.dtype) / x.shape[1]
        apart = x.to(scale.dtype) - mean[:, None]
        apart -= apart.mean(-1, keepdim=True)  # what the mean was rounded by
        return (apart * along[:, None]).to(x.dtype)


def one_pass(x: Tensor) -> Tensor:
    """1 / √(variance + eps) of each row. Rows too long to be held are read once where there are
    many: E[x²] − E[x]².

    Wrong where a row is longer than a block of 1024, there are more than 64 rows, sums are in
    float32 and so is the result (a half precision hides it), and the numbers are far from zero.
    """
    return _RowScale.apply(x)


def _plain(x: Tensor) -> Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return torch.rsqrt((apart * apart).mean(-1) + _EPS)


variance_in_one_pass = kernel_check(
    one_pass,
    dtypes=DTYPES,
    reference=_plain,
    arguments={"x": Argument("rows", "width")},
    families=("normal", "shifted", "outlier", "zeros"),
)


@triton.jit
def _dweight(
    x_ptr,
    dy_ptr,
    scale_ptr,
    parts_ptr,
    count,
    width,
    each,
    x_stride,
    dy_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program's `each` rows' part of dweight."""
    first = tl.program_id(0).to(tl.int64) * each
    if first >= count:
        return
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, each, ROWS):
        row = first + start + tl.arange(0, ROWS)
        there = row < tl.minimum(first + each, count)
        inside = there[:, None] & (columns < width)[None, :]
        x = tl.load(x_ptr + row[:, None] * x_stride + columns[None, :], mask=inside, other=0.0)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + columns[None, :], mask=inside, other=0.0)
        scale = tl.load(scale_ptr + row, mask=there, other=0.0)
        total += tl.sum(dy.to(tl.float32) * x.to(tl.float32) * scale[:, None], axis=0)
    tl.store(parts_ptr + tl.program_id(0) * width + columns, total, mask=columns < width)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.to(held_in(x.dtype))
        scale = torch.rsqrt((wide * wide).mean(-1) + _EPS)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale[:, None] * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, scale = ctx.saved_tensors
        normal, g = x.to(scale.dtype) * scale[:, None], dy.to(scale.dtype) * weight
        dx = scale[:, None] * (g - normal * (g * normal).mean(-1, keepdim=True))
        if x.element_size() > 2:
            return dx, (dy * normal).contiguous().sum(0)
        return dx.to(x.dtype), _summed(rows(x), rows(dy), scale).to(weight.dtype)


def _summed(x: Tensor, dy: Tensor, scale: Tensor) -> Tensor:
    """dweight, from parts that programs sum at once."""
    count, width = x.shape
    programs = max(1, min(_SPLITS, count, x.numel() // _LEAST))
    each = max(1, triton.cdiv(count, programs))
    parts = torch.empty((programs, width), dtype=scale.dtype)
    numbers = (count, width, each, x.stride(0), dy.stride(0))
    if not count:
        return parts.sum(0).zero_()
    _dweight[(programs,)](
        x, dy, scale, parts, *numbers, ROWS=16, BLOCK=triton.next_power_of_2(width)
    )
    return parts.sum(0)


def parts(x: Tensor, weight: Tensor) -> Tensor:
    """Rows are shared among programs, as many for each; one that gets none returns at once.

    Wrong where the last program gets none: ⌈rows / programs⌉ rows for each leave nothing to it (9
    rows among 4, 4 among 3), and there are as many programs only for as much work: its part of
    dweight is then never written, and is summed. In half precision only: torch sums the others.
    """
    return _RMSNorm.apply(x, weight)


dweight_part_unwritten = kernel_check(
    parts,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=lambda x, weight: reference.rms_normalise(x, weight, _EPS),
    arguments={"x": Argument("rows", "width"), "weight": Argument("width")},
    sizes={"rows": between(0, 160), "width": between(1, 200)},
)
