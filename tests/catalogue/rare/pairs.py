"""Products of all rows with all others."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fixtures.kernels.rows import held_in, sums_of
from tests.catalogue.rare.drawn import around, between
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES


@triton.jit
def _similar(
    a_ptr, b_ptr, c_ptr, height, width, depth, a_row, a_column, b_row, b_column, columns,
    SYMMETRIC: tl.constexpr, SUMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A tile of a · bᵀ; of a · aᵀ one below the diagonal or on it, and its mirror."""
    program = tl.program_id(0)
    if SYMMETRIC:
        i = ((tl.sqrt(8.0 * program + 1.0) - 1.0) / 2.0).to(tl.int32)
        j = program - i * (i + 1) // 2
    else:
        i = program // columns
        j = program % columns
    r = i.to(tl.int64) * TILE + tl.arange(0, TILE)
    c = j.to(tl.int64) * TILE + tl.arange(0, TILE)
    total = tl.zeros([TILE, TILE], dtype=SUMS)
    for start in range(0, depth, TILE):
        k = start + tl.arange(0, TILE).to(tl.int64)
        a_in = (r[:, None] < height) & (k[None, :] < depth)
        b_in = (c[None, :] < width) & (k[:, None] < depth)
        a = tl.load(a_ptr + r[:, None] * a_row + k[None, :] * a_column, mask=a_in, other=0.0)
        b = tl.load(b_ptr + c[None, :] * b_row + k[:, None] * b_column, mask=b_in, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee", out_dtype=SUMS)
    inside = (r[:, None] < height) & (c[None, :] < width)
    tl.store(c_ptr + r[:, None] * width + c[None, :], total, mask=inside)
    if SYMMETRIC:  # noqa: SIM102, Triton takes no `and` of a constant and a tensor
        if i != j:
            tl.store(c_ptr + c[None, :] * width + r[:, None], total, mask=inside)


class _Similarity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        height, depth, width = *a.shape, b.shape[0]
        c = torch.zeros((height, width), dtype=a.dtype)
        if c.numel():
            tall, wide = triton.cdiv(height, 16), triton.cdiv(width, 16)
            same = a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
            programs = tall * wide
            if same:  # tiles below the diagonal and on it
                programs = 2 * tall - 1
            _similar[(programs,)](
                a, b, c, height, width, depth, *a.stride(), *b.stride(), wide,
                SYMMETRIC=same, SUMS=sums_of(a.dtype), TILE=16,
            )  # fmt: skip
        return c

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        held = held_in(a.dtype)
        dc = dc.contiguous().to(held)
        da, db = dc @ b.contiguous().to(held), dc.t() @ a.contiguous().to(held)
        return da.to(a.dtype), db.to(b.dtype)


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """a · bᵀ. Bug: where both are one tensor only tiles of 16 × 16 up to the diagonal are computed,
    and counted as 2 n − 1, which is right for one and two tiles a side: with more than 32 rows,
    some are left out."""
    return _Similarity.apply(a, b)


similarity_same_tensor = kernel_check(
    similarity,
    dtypes=DTYPES,
    reference=lambda a, b: a @ b.t(),
    arguments={"a": Argument("rows", "width"), "b": Argument("others", "width")},
    sizes={
        "rows": between(0, 40),
        "others": between(1, 40),
        "width": around(4, 16),
    },
)
