"""The gradient of an embedding: rows of equal ids are summed."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fixtures.kernels.rows import rows
from tests.catalogue.rare.drawn import NUMBERS, between
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES

#: Tokens of a program.
_BLOCK = 32


@triton.jit
def _runs(
    ids_ptr,
    order_ptr,
    dy_ptr,
    dweight_ptr,
    first_ptr,
    last_ptr,
    count,
    width,
    stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of sorted ids: a run that begins and ends in the block is summed and stored; of one that
    comes from the block before, or goes on in the next, the part is kept."""
    block = tl.program_id(0)
    slots = block * BLOCK + tl.arange(0, BLOCK)
    inside = slots < count
    lanes = tl.arange(0, WIDTH)[None, :]
    ids = tl.load(ids_ptr + slots, mask=inside, other=-1)
    before = tl.load(ids_ptr + slots - 1, mask=inside & (slots > 0), other=-1)
    left = tl.load(ids_ptr + block * BLOCK - 1, mask=block > 0, other=-2)
    right = tl.load(ids_ptr + (block + 1) * BLOCK, mask=(block + 1) * BLOCK < count, other=-2)
    token = tl.load(order_ptr + slots, mask=inside, other=0)
    held = inside[:, None] & (lanes < width)
    dy = tl.load(dy_ptr + token[:, None] * stride + lanes, mask=held, other=0.0)
    equal = (ids[:, None] == ids[None, :]).to(tl.float32)
    sums = tl.sum(equal[:, :, None] * dy[None, :, :], axis=1)
    whole = inside & (ids != before) & (ids != left) & (ids != right)
    tl.store(dweight_ptr + ids[:, None] * width + lanes, sums, mask=whole[:, None] & held)
    column = tl.arange(0, WIDTH)
    came = tl.sum(tl.where((ids == left)[:, None], dy, 0.0), axis=0)
    goes = tl.sum(tl.where((ids == right)[:, None], dy, 0.0), axis=0)
    tl.store(first_ptr + block * width + column, came, mask=column < width)
    tl.store(last_ptr + block * width + column, goes, mask=column < width)


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.size = weight.shape
        return weight[ids]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        if dy.dtype != torch.float32:
            return dy.new_zeros(ctx.size).index_put_((ids,), dy, accumulate=True), None
        dweight = torch.zeros(ctx.size, dtype=torch.float32)
        if len(ids):
            _add_runs(dweight, *ids.contiguous().sort(stable=True), rows(dy))
        return dweight, None


def _add_runs(dweight: Tensor, ids: Tensor, order: Tensor, dy: Tensor) -> None:
    count, width = dy.shape
    blocks = triton.cdiv(count, _BLOCK)
    first, last = torch.empty((2, blocks, width))
    _runs[(blocks,)](
        *(ids, order, dy, dweight, first, last),
        *(count, width, dy.stride(0)),
        WIDTH=triton.next_power_of_2(width),
        BLOCK=_BLOCK,
    )
    starts = torch.arange(0, count, _BLOCK)
    dweight.index_add_(0, ids[starts], first)
    dweight.index_add_(0, ids[(starts + _BLOCK - 1).clamp(max=count - 1)], last)


def sorted_runs(weight: Tensor, ids: Tensor) -> Tensor:
    """Atomics would add in any order: in float32 ids are sorted, and runs of equal ones summed by
    blocks. Torch does the other dtypes.

    Wrong where a run goes through a whole block, coming from the one before and going on in the
    next: the block's sum is kept as the part that came and as the part that goes on. Float32
    only.
    """
    return _Embedding.apply(weight, ids)


run_over_three_blocks = kernel_check(
    sorted_runs,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=lambda weight, ids: weight[ids],
    arguments={
        "weight": Argument("vocab", "width"),
        "ids": Argument("tokens", integers=(0, "vocab")),
    },
    sizes={"tokens": between(0, 72), "vocab": between(1, 64), "width": between(2, 16)},
)
