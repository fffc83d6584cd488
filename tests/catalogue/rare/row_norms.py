"""Two norms: a weight's gradient asked alone, and a path for a single row."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from fixtures.kernels.rows import held_in, sums_of
from tests.catalogue.rare.drawn import between
from tests.catalogue.rare.held import ROWS_AT_ONCE, block_of, unit
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES


@triton.jit
def _rms_forward(
    x_ptr, w_ptr, y_ptr, scale_ptr, count, width, stride,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    w = tl.load(w_ptr + c, mask=c < width, other=0.0).to(SUMS)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / width + 1e-5)
    tl.store(scale_ptr + r, scale, mask=r < count)
    tl.store(y_ptr + r[:, None] * width + c[None, :], x * scale[:, None] * w[None, :], mask=inside)


@triton.jit
def _rms_backward(
    x_ptr, w_ptr, dy_ptr, scale_ptr, dx_ptr, count, width, stride, dy_stride,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    g = tl.load(dy_ptr + r[:, None] * dy_stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    g *= tl.load(w_ptr + c, mask=c < width, other=0.0).to(SUMS)[None, :]
    scale = tl.load(scale_ptr + r, mask=r < count, other=0.0)[:, None]
    along = tl.sum(g * x * scale, axis=1)[:, None] / width
    tl.store(dx_ptr + r[:, None] * width + c[None, :], scale * (g - x * scale * along), mask=inside)


@triton.jit
def _rms_weight(
    x_ptr, dy_ptr, scale_ptr, part_ptr, count, width, stride, dy_stride,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    dy = tl.load(dy_ptr + r[:, None] * dy_stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    scale = tl.load(scale_ptr + r, mask=r < count, other=0.0)[:, None]
    dw = tl.sum(x * dy * scale, axis=0)
    tl.store(part_ptr + tl.program_id(0) * width + c, dw, mask=c < width)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        flat, weight = unit(x), weight.contiguous()
        count, width = flat.shape
        y = torch.empty((count, width), dtype=x.dtype)
        scale = torch.empty(count, dtype=held_in(x.dtype))
        how = {"ROWS": ROWS_AT_ONCE, "SUMS": sums_of(x.dtype)}
        if y.numel():
            _rms_forward[(triton.cdiv(count, ROWS_AT_ONCE),)](
                flat, weight, y, scale, count, width, flat.stride(0), BLOCK=block_of(width), **how
            )
        ctx.save_for_backward(x, weight, scale)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, scale = ctx.saved_tensors
        flat, dy = unit(x), unit(dy)
        count, width = flat.shape
        groups = triton.cdiv(count, ROWS_AT_ONCE)
        dx = torch.empty((count, width), dtype=x.dtype) if ctx.needs_input_grad[0] else None
        parts = torch.zeros((groups, width), dtype=scale.dtype)
        if count and width:
            same = (count, width, flat.stride(0), dy.stride(0))
            how = {"ROWS": ROWS_AT_ONCE, "SUMS": sums_of(x.dtype)}
            if dx is not None:
                _rms_backward[(groups,)](
                    flat, weight, dy, scale, dx, *same, BLOCK=block_of(width), **how
                )
                _rms_weight[(groups, 1)](
                    flat, dy, scale, parts, *same, BLOCK=block_of(width), **how
                )
            elif groups == 1:
                _rms_weight[(1, triton.cdiv(width, 64))](
                    flat, dy, scale, parts, *same, BLOCK=64, **how
                )
            else:  # many programs: blocks of 64 columns, rounded up
                columns = max(1, (width + 62) // 64)
                _rms_weight[(groups, columns)](flat, dy, scale, parts, *same, BLOCK=64, **how)
        return dx, parts.sum(0).to(weight.dtype)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm. Bug: where the weight's gradient is asked alone and there are several groups of 32
    rows, the number of column blocks is rounded up by 62 and not 63, so that a last block of one
    column (width % 64 == 1) has no gradient."""
    return _RMSNorm.apply(x, weight)


def _rms_reference(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


rms_norm_weight_alone = kernel_check(
    rms_norm,
    dtypes=DTYPES,
    reference=_rms_reference,
    arguments={"x": Argument("rows", "width"), "weight": Argument("width")},
    sizes={"width": between(1, 300)},
)


@triton.jit
def _layer_norm_forward(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, scale_ptr, count, width, stride,
    ROWS: tl.constexpr, SQUARES: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    mean = tl.sum(x, axis=1) / width
    if SQUARES:
        variance = tl.maximum(tl.sum(x * x, axis=1) / width - mean * mean, 0.0)
    else:
        apart = tl.where(inside, x - mean[:, None], 0.0)
        variance = tl.sum(apart * apart, axis=1) / width
    scale = 1.0 / tl.sqrt(variance + 1e-5)
    tl.store(mean_ptr + r, mean, mask=r < count)
    tl.store(scale_ptr + r, scale, mask=r < count)
    w = tl.load(w_ptr + c, mask=c < width, other=0.0).to(SUMS)[None, :]
    b = tl.load(b_ptr + c, mask=c < width, other=0.0).to(SUMS)[None, :]
    y = (x - mean[:, None]) * scale[:, None] * w + b
    tl.store(y_ptr + r[:, None] * width + c[None, :], y, mask=inside)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        flat, weight, bias = unit(x), weight.contiguous(), bias.contiguous()
        count, width = flat.shape
        y = torch.empty((count, width), dtype=x.dtype)
        mean, scale = (torch.empty(count, dtype=held_in(x.dtype)) for _ in range(2))
        if count:
            # a row in the registers of four warps, a number for each thread
            decode = count == 1 and 96 < width <= 128
            how = {"ROWS": ROWS_AT_ONCE, "SUMS": sums_of(x.dtype), "BLOCK": block_of(width)}
            _layer_norm_forward[(triton.cdiv(count, ROWS_AT_ONCE),)](
                flat,
                weight,
                bias,
                y,
                mean,
                scale,
                count,
                width,
                flat.stride(0),
                SQUARES=decode,
                **how,
            )
        ctx.save_for_backward(x, weight, mean, scale)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, scale = ctx.saved_tensors
        held = mean.dtype
        dy, mean, scale = dy.contiguous().to(held), mean[:, None], scale[:, None]
        normal = (x.contiguous().to(held) - mean) * scale
        g = dy * weight.to(held)
        along = (g * normal).mean(-1, keepdim=True)
        dx = scale * (g - g.mean(-1, keepdim=True) - normal * along)
        return dx.to(x.dtype), (dy * normal).sum(0).to(x.dtype), dy.sum(0).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm. Bug: a single row of 97 to 128 numbers takes the decoding path, which computes the
    variance in one pass as E[x²] − E[x]²: without digits in float32 where numbers are far from
    zero."""
    return _LayerNorm.apply(x, weight, bias)


layer_norm_one_row = kernel_check(
    layer_norm,
    dtypes=DTYPES,
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias),
    arguments={
        "x": Argument("rows", "width"),
        "weight": Argument("width"),
        "bias": Argument("width"),
    },
    sizes={"width": between(1, 300)},
)
