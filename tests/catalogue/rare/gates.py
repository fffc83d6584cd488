"""Two activations whose tensors lie in memory in ways of their own."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from fixtures.kernels.rows import held_in, sums_of
from tests.catalogue.rare.drawn import around, between
from tests.catalogue.rare.held import ROWS_AT_ONCE, block_of, unit
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES


@triton.jit
def _swiglu_forward(
    gate_ptr, up_ptr, y_ptr, count, width, gate_row, gate_column, up_row, up_column,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64)[None, None] * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, BLOCK)[None, :].to(tl.int64)
    inside = (r < count) & (c < width)
    gate = tl.load(gate_ptr + r * gate_row + c * gate_column, mask=inside, other=0.0).to(SUMS)
    up = tl.load(up_ptr + r * up_row + c * up_column, mask=inside, other=0.0).to(SUMS)
    tl.store(y_ptr + r * width + c, gate / (1.0 + tl.exp(-gate)) * up, mask=inside)


@triton.jit
def _swiglu_backward(
    gate_ptr, up_ptr, dy_ptr, dgate_ptr, dup_ptr, count, width,
    gate_row, gate_column, up_row, up_column,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64)[None, None] * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, BLOCK)[None, :].to(tl.int64)
    inside = (r < count) & (c < width)
    gate = tl.load(gate_ptr + r * gate_row + c * gate_column, mask=inside, other=0.0).to(SUMS)
    up = tl.load(up_ptr + r * up_row + c * up_column, mask=inside, other=0.0).to(SUMS)
    dy = tl.load(dy_ptr + r * width + c, mask=inside, other=0.0).to(SUMS)
    share = 1.0 / (1.0 + tl.exp(-gate))
    dgate = dy * up * share * (1.0 + gate * (1.0 - share))
    tl.store(dgate_ptr + r * width + c, dgate, mask=inside)
    tl.store(dup_ptr + r * width + c, dy * gate * share, mask=inside)


def _pair_strides(gate: Tensor, up: Tensor) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Both tensors' strides. Tensors of one row pitch are views of one projection."""
    same = gate.stride(0) == up.stride(0)
    if same:
        return up, (*gate.stride(), *gate.stride())
    up = up.contiguous()
    return up, (*gate.stride(), *up.stride())


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        y = torch.empty(gate.shape, dtype=gate.dtype)
        if y.numel():
            count, width = gate.shape
            up, strides = _pair_strides(gate, up)
            how = {"ROWS": ROWS_AT_ONCE, "SUMS": sums_of(gate.dtype), "BLOCK": block_of(width)}
            grid = (triton.cdiv(count, ROWS_AT_ONCE),)
            _swiglu_forward[grid](gate, up, y, count, width, *strides, **how)
        return y

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = (torch.empty(gate.shape, dtype=gate.dtype) for _ in range(2))
        if dgate.numel():
            count, width = gate.shape
            up, strides = _pair_strides(gate, up)
            how = {"ROWS": ROWS_AT_ONCE, "SUMS": sums_of(gate.dtype), "BLOCK": block_of(width)}
            grid = (triton.cdiv(count, ROWS_AT_ONCE),)
            _swiglu_backward[grid](
                gate, up, dy.contiguous(), dgate, dup, count, width, *strides, **how
            )
        return dgate, dup


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up. Bug: where both tensors' rows are equally far apart they are taken to have
    the same inner stride, too: wrong where one has every second element of rows and the other is
    padded, with the same pitch (of tpcheck's formats: 2 W + 1 and W + 5, at width 4)."""
    return _SwiGLU.apply(gate, up)


swiglu_row_pitch = kernel_check(
    swiglu,
    dtypes=DTYPES,
    reference=lambda gate, up: F.silu(gate) * up,
    arguments={"gate": Argument("rows", "width"), "up": Argument("rows", "width")},
    sizes={"width": around(4, 16, 64)},
)


@triton.jit
def _silu(z):
    return z / (1.0 + tl.exp(-z))


@triton.jit
def _bias_rows(
    x_ptr, b_ptr, y_ptr, count, width, stride,
    ROWS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < count) & (c[None, :] < width)
    z = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=inside, other=0.0).to(SUMS)
    z += tl.load(b_ptr + c, mask=c < width, other=0.0).to(SUMS)[None, :]
    tl.store(y_ptr + r[:, None] * width + c[None, :], _silu(z), mask=inside)


@triton.jit
def _bias_columns(
    x_ptr, b_ptr, y_ptr, count, width, inverse,
    FAST: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Columns behind one another in memory, as one long row."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count * width
    column = (at.to(tl.float32) * inverse).to(tl.int32) if FAST else at // count
    z = tl.load(x_ptr + at, mask=inside, other=0.0).to(SUMS)
    z += tl.load(b_ptr + column, mask=inside, other=0.0).to(SUMS)
    tl.store(y_ptr + at, _silu(z), mask=inside)


class _BiasSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x, bias)
        bias = bias.contiguous()
        count, width = x.shape
        sums = sums_of(x.dtype)
        if x.numel() and x.stride() == (1, count):
            y = torch.empty((width, count), dtype=x.dtype).t()
            # long 16-bit columns are bound by the division
            fast = x.element_size() == 2 and width >= 64
            _bias_columns[(triton.cdiv(count * width, 1024),)](
                x, bias, y, count, width, 1.0 / count, FAST=fast, SUMS=sums, BLOCK=1024
            )
            return y
        flat = unit(x)
        y = torch.empty((count, width), dtype=x.dtype)
        if y.numel():
            _bias_rows[(triton.cdiv(count, ROWS_AT_ONCE),)](
                flat, bias, y, count, width, flat.stride(0),
                ROWS=ROWS_AT_ONCE, SUMS=sums, BLOCK=block_of(width),
            )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx, dy):
        x, bias = ctx.saved_tensors
        held = held_in(x.dtype)
        z = x.contiguous().to(held) + bias.to(held)
        share = torch.sigmoid(z)
        dz = dy.contiguous().to(held) * share * (1.0 + z * (1.0 - share))
        return dz.to(x.dtype), dz.sum(0).to(bias.dtype)


def bias_silu(x: Tensor, bias: Tensor) -> Tensor:
    """silu(x + bias). Bug: of a 16-bit matrix that is stored by columns, of 64 or more, an
    element's column is its index times 1 / rows in float32, which for 41 rows is too small by one
    at the first element of some columns (of up to 45 rows)."""
    return _BiasSilu.apply(x, bias)


bias_silu_reciprocal = kernel_check(
    bias_silu,
    dtypes=DTYPES,
    reference=lambda x, bias: F.silu(x + bias),
    arguments={"x": Argument("rows", "width"), "bias": Argument("width")},
    sizes={
        "rows": between(0, 45),
        "width": around(4, 16, 64),
    },
)
