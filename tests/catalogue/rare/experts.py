"""Two steps of a mixture of experts: dispatch, and combining a token's two choices."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from tests.catalogue.rare.drawn import NUMBERS, between
from tpcheck import Argument, kernel_check
from tpcheck.case import DTYPES

#: Choices of a program.
_BLOCK = 64


@triton.jit
def _combine(
    x_ptr,
    gates_ptr,
    scale_ptr,
    choice_ptr,
    order_ptr,
    y_ptr,
    count,
    width,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    slots = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = slots < count
    lanes = tl.arange(0, WIDTH)[None, :]
    made = tl.load(order_ptr + slots, mask=inside, other=0)
    token = tl.where(inside, made // 2, -1)
    expert = tl.load(choice_ptr + made, mask=inside, other=0)
    other = tl.load(choice_ptr + (made ^ 1), mask=inside, other=-1)
    held = inside[:, None] & (lanes < width)
    x = tl.load(x_ptr + token[:, None] * width + lanes, mask=held, other=0.0)
    x *= tl.load(scale_ptr + expert[:, None] * width + lanes, mask=held, other=0.0)
    x *= tl.load(gates_ptr + made, mask=inside, other=0.0)[:, None]
    same = (token[:, None] == token[None, :]).to(tl.int32)
    sums = tl.sum(same[:, :, None].to(tl.float32) * x[None, :, :], axis=1)
    lane = tl.arange(0, BLOCK)
    ahead = tl.sum(same * (lane[None, :] < lane[:, None]).to(tl.int32), axis=1)
    twins = expert == other  # one behind the other, in order
    y_ptr += token[:, None] * width + lanes
    tl.store(y_ptr, sums, mask=held & (twins & (ahead == 0))[:, None])
    tl.atomic_add(y_ptr, x, mask=held & (expert != other)[:, None])


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        ctx.save_for_backward(*given)
        x, gates, scale, choice = (one.contiguous() for one in given)
        if x.dtype != torch.float32:
            return (gates[..., None] * scale[choice]).sum(1) * x
        y, count = torch.zeros_like(x), choice.numel()
        if count:
            order = choice.view(-1).argsort(stable=True)
            _combine[(triton.cdiv(count, _BLOCK),)](
                *(x, gates, scale, choice, order, y),
                *(count, x.shape[1]),
                WIDTH=triton.next_power_of_2(x.shape[1]),
                BLOCK=_BLOCK,
            )
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, scale, choice = ctx.saved_tensors
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in (x, gates, scale)]
            y = (leaves[1][..., None] * leaves[2][choice]).sum(1) * leaves[0]
            return *torch.autograd.grad(y, leaves, dy), None


def combine(x: Tensor, gates: Tensor, scale: Tensor, choice: Tensor) -> Tensor:
    """What a token's two experts make of it is added up: by atomics, in float32; where it chose one
    expert twice, in the program, since the two are neighbours when choices are sorted.

    Wrong where the border of two programs falls between them: there are more choices than a
    program takes, a token has chosen one expert twice, and sorting puts the first at the end of a
    program's and the second at the start of the next's. Both programs store the token's row.
    """
    return _Combine.apply(x, gates, scale, choice)


twins_in_two_programs = kernel_check(
    combine,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=lambda x, gates, scale, choice: (gates[..., None] * scale[choice]).sum(1) * x,
    arguments={
        "x": Argument("tokens", "width"),
        "gates": Argument("tokens", 2),
        "scale": Argument("experts", "width"),
        "choice": Argument("tokens", 2, integers=(0, "experts")),
    },
    sizes={"tokens": between(0, 38), "experts": between(2, 40), "width": between(1, 8)},
)


def dispatch(x: Tensor, scale: Tensor, choice: Tensor) -> Tensor:
    """Each token has a place in its expert's buffer: how many before it chose the same.

    Wrong in bfloat16 where an expert is chosen by more than 256 tokens: places are counted in the
    dtype of the tokens, in which 256 + 1 is 256.
    """
    experts, width = scale.shape
    chosen = F.one_hot(choice, experts).to(x.dtype)
    place = (chosen.cumsum(0) * chosen).sum(1).long() - 1
    capacity = max(1, len(x))
    slots = choice * capacity + place
    buffer = x.new_zeros(experts * capacity, width).index_copy(0, slots, x)
    return buffer[slots] * scale[choice]


places_counted_in_bfloat16 = kernel_check(
    dispatch,
    families=NUMBERS,
    dtypes=DTYPES,
    reference=lambda x, scale, choice: x * scale[choice],
    arguments={
        "x": Argument("tokens", "width"),
        "scale": Argument("experts", "width"),
        "choice": Argument("tokens", integers=(0, "experts")),
    },
    sizes={"tokens": between(0, 320), "experts": between(1, 64), "width": between(1, 8)},
)
