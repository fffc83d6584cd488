"""Along rows: a convolution of few taps, and a mean that is taken off."""

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

TAPS = 4


@triton.jit
def _conv_forward(
    x_ptr, w_ptr, y_ptr, count, length, stride, dilation, taps,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < length)
    total = tl.zeros([ROWS, BLOCK], dtype=SUMS)
    for k in range(0, taps):
        at = c[None, :] - k * dilation
        x = tl.load(x_ptr + r[:, None] * stride + at, mask=inside & (at >= 0), other=0.0)
        total += tl.load(w_ptr + k).to(SUMS) * x.to(SUMS)
    tl.store(y_ptr + r[:, None] * length + c[None, :], total, mask=inside)


def _reach(x: Tensor, dilation: int) -> int:
    """How many taps reach an element of a row; further ones are not worth a pass."""
    length = x.shape[-1]
    paired = x.element_size() == 2 and dilation % 2 == 0 and x.stride(0) % 2 == 0
    if paired and length > 1:  # elements are loaded two at a time
        length = length // 2 * 2
    return min(TAPS, (length - 1) // dilation + 1)


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, dilation):
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        flat, weight = unit(x), weight.contiguous()
        count, length = flat.shape
        y = torch.empty((count, length), dtype=x.dtype)
        if count:
            how = {"ROWS": ROWS_AT_ONCE, "SUMS": sums_of(x.dtype), "BLOCK": block_of(length)}
            _conv_forward[(triton.cdiv(count, ROWS_AT_ONCE),)](
                flat,
                weight,
                y,
                count,
                length,
                flat.stride(0),
                dilation,
                _reach(flat, dilation),
                **how,
            )
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        held = held_in(x.dtype)
        wide, dy, w = x.to(held).contiguous(), dy.to(held).contiguous(), weight.to(held)
        dx, dw = torch.zeros_like(wide), torch.zeros_like(w)
        for k in range(TAPS):
            left = x.shape[-1] - k * ctx.dilation
            if left > 0:
                late = dy[:, k * ctx.dilation :]
                dx[:, :left] += w[k] * late
                dw[k] = (wide[:, :left] * late).sum()
        return dx.to(x.dtype), dw.to(weight.dtype), None


def causal_conv(x: Tensor, weight: Tensor, *, dilation: int) -> Tensor:
    """y[t] = Σ weight[k] x[t − k · dilation], of 4 taps. Bug: where 16-bit elements can be loaded
    in pairs (even dilation, rows an even number of elements apart) the number of taps that reach
    anything is counted without the last element of an odd row, so that the last tap is left out
    where length = m · dilation + 1, m from 1 to 3."""
    return _CausalConv.apply(x, weight, dilation)


def _conv_reference(x: Tensor, weight: Tensor, *, dilation: int) -> Tensor:
    length = x.shape[-1]
    padded = F.pad(x, ((TAPS - 1) * dilation, 0))
    starts = [(TAPS - 1 - k) * dilation for k in range(TAPS)]
    return sum(weight[k] * padded[:, start : start + length] for k, start in enumerate(starts))


causal_conv_pairs = kernel_check(
    causal_conv,
    dtypes=DTYPES,
    reference=_conv_reference,
    arguments={"x": Argument("rows", "length"), "weight": Argument(TAPS)},
    sizes={"length": between(1, 300)},
    options={"dilation": between(1, 16)},
)


#: Of the fixed point that sums of large numbers are kept in.
FRACTION = 2.0**13


class _Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        wide = x.contiguous().to(held_in(x.dtype))
        total = wide.sum(-1, keepdim=True)
        if x.dtype == torch.bfloat16 and x.numel():
            most = wide.abs().amax(-1)
            large = (most >= 8.0) & most.isfinite()
            whole = (wide[large] * FRACTION).round().to(torch.int32)
            fixed = whole.sum(-1, keepdim=True, dtype=whole.dtype)
            total[large] = (fixed.double() / FRACTION).to(total.dtype)
        return (wide - total / x.shape[-1]).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        wide = dy.contiguous().to(held_in(dy.dtype))
        return (wide - wide.mean(-1, keepdim=True)).to(dy.dtype)


def centre(x: Tensor) -> Tensor:
    """x − its mean. Bug: in bfloat16, rows with a number above 8 are summed in fixed point of 13
    bits, so that the order does not matter, and the int32 overflows from a sum of 2¹⁸ on: about 256
    numbers that are about 1024 (far from zero, × 16)."""
    return _Centre.apply(x)


centre_fixed_point = kernel_check(
    centre,
    dtypes=DTYPES,
    reference=lambda x: x - x.mean(-1, keepdim=True),
    arguments={"x": Argument("rows", "width")},
    sizes={"width": between(1, 264)},
)
