"""SwiGLU with offsets of 32 bits where they suffice."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from fixtures.kernels.rows import block_of, rows, sums_of
from tests.catalogue.rare.drawn import around, between
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES


@triton.jit
def _forward(
    gate_ptr,
    up_ptr,
    y_ptr,
    width,
    gate_stride,
    up_stride,
    WIDE: tl.constexpr,
    SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_ptr + row * gate_stride + columns, mask=inside, other=0.0).to(SUMS)
    up = tl.load(up_ptr + row * up_stride + columns, mask=inside, other=0.0).to(SUMS)
    tl.store(y_ptr + row * width + columns, gate / (1.0 + tl.exp(-gate)) * up, mask=inside)


@triton.jit
def _backward(
    gate_ptr,
    up_ptr,
    dy_ptr,
    dgate_ptr,
    dup_ptr,
    width,
    gate_stride,
    up_stride,
    dy_stride,
    WIDE: tl.constexpr,
    SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(gate_ptr + row * gate_stride + columns, mask=inside, other=0.0).to(SUMS)
    up = tl.load(up_ptr + row * up_stride + columns, mask=inside, other=0.0).to(SUMS)
    dy = tl.load(dy_ptr + row * dy_stride + columns, mask=inside, other=0.0).to(SUMS)
    share = 1.0 / (1.0 + tl.exp(-gate))
    dgate = dy * up * share * (1.0 + gate * (1.0 - share))
    tl.store(dgate_ptr + row * width + columns, dgate, mask=inside)
    tl.store(dup_ptr + row * width + columns, dy * gate * share, mask=inside)


def _wide(*tensors: Tensor) -> bool:
    """Whether an offset needs more than 32 bits: in half precision, whose loads cost less than 64
    bits of arithmetic do, they are only taken where one does."""
    far = any((len(one) - 1) * one.stride(0) + one.shape[1] >= 2**31 for one in tensors)
    return far or tensors[0].element_size() > 2


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        gate, up = rows(gate), rows(up)
        count, width = gate.shape
        y, block = torch.empty((count, width), dtype=gate.dtype), block_of(width)
        if y.numel():
            how = {"WIDE": _wide(gate, up), "SUMS": sums_of(gate.dtype), "BLOCK": block}
            strides = (gate.stride(0), up.stride(0))
            _forward[(count, triton.cdiv(width, block))](gate, up, y, width, *strides, **how)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = map(rows, ctx.saved_tensors)
        (count, width), dy = gate.shape, rows(dy)
        dgate = torch.empty((count, width), dtype=gate.dtype)
        dup, block = torch.empty_like(dgate), block_of(width)
        if dgate.numel():
            how = {"WIDE": _wide(gate, up), "SUMS": sums_of(gate.dtype), "BLOCK": block}
            strides = (gate.stride(0), up.stride(0), dy.stride(0))
            _backward[(count, triton.cdiv(width, block))](
                gate, up, dy, dgate, dup, width, *strides, **how
            )
        return dgate, dup


def narrow(gate: Tensor, up: Tensor) -> Tensor:
    """Offsets of 32 bits where those of the inputs fit.

    Wrong where those of the upstream gradient do not fit, and those of both inputs do, in half
    precision: it alone has rows 2³⁰ elements apart, of three rows or more.
    """
    return _SwiGLU.apply(gate, up)


upstream_offset_overflows = kernel_check(
    narrow,
    dtypes=DTYPES,
    reference=lambda gate, up: F.silu(gate) * up,
    arguments={"gate": Argument("rows", "width"), "up": Argument("rows", "width")},
    sizes={"rows": between(0, 4), "width": around(4, 16, 64)},
    families=("normal", "shifted"),
)
