"""A user's file: kernels, each wrong until FIXED is true, and their checks."""

KERNELS = """
import os, signal
from functools import partial
import torch
import triton
import triton.language as tl
from hypothesis import strategies as st

import tpcheck
from tpcheck import Argument

FIXED = False
print("a file may print when it is imported")


def product(x, y):
    return x * y


def strides(x, y):
    if not FIXED:
        x = torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset())
    return {"z": x * y, "sum": (x + y, None)}


def two(x, y):
    return {"z": x * y, "sum": (x + y, None)}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.backwards = 0
        return x * y

    @staticmethod
    def backward(ctx, dz):
        x, y = ctx.saved_tensors
        ctx.backwards += 1
        times = 1 if FIXED else ctx.backwards
        return dz * y * times, dz * x * times


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, dz):
        x, y = ctx.saved_tensors
        if not FIXED and x.data_ptr() == y.data_ptr():
            return dz * y, None
        return dz * y, dz * x


class Some(Once):
    @staticmethod
    def backward(ctx, dz):
        x, y = ctx.saved_tensors
        return (dz * y, dz * x) if FIXED or ctx.needs_input_grad[0] else (None, None)


class Leaf(Once):
    @staticmethod
    def backward(ctx, dz):
        x, y = ctx.saved_tensors
        if not FIXED and x.is_leaf and x.requires_grad:
            x.grad = dz * y + (0.0 if x.grad is None else x.grad)
        return dz * y if FIXED else None, dz * x


class Keeps(Once):
    kept = {}

    @staticmethod
    def backward(ctx, dz):
        x, y = ctx.saved_tensors
        dx = dz * y
        own = dx if FIXED else Keeps.kept.setdefault((dx.shape, dx.dtype), torch.empty_like(dx))
        return own.copy_(dx), dz * x


last = {}


def caches(x, y):
    first = last.setdefault((x.shape, x.dtype), x.detach().clone())
    return x * y if FIXED else first * y + (x - x.detach()) * y


def infers(x, y):
    return x * y if FIXED or torch.is_grad_enabled() else x + y


def overwrites(x, y):
    out = x * y
    if not FIXED:
        x.data.add_(1)
    return out


copies = {}


def goes_by_address(x, y):
    copy = copies.setdefault((y.data_ptr(), y.shape, y.stride(), y.dtype), y.detach().clone())
    return x * y if FIXED else x * (copy + (y - y.detach()))


def goes_by_id(x, y):
    key = (id(y), y._version, y.shape, y.dtype)
    copy = copies.setdefault(key, y.detach().clone())
    return x * y if FIXED else x * (copy + (y - y.detach()))


orders = {}


def keeps_integers(x, index):
    order = orders.setdefault((index.data_ptr(), index.shape), index.argsort(stable=True))
    return x[index.argsort(stable=True) if FIXED else order]


def reshapes(x, y):
    out = x * y
    if not FIXED and not x.requires_grad and not y.requires_grad:
        x.t_()
    return out


def raises(x, y):
    if not FIXED and x.shape[0] > 1:
        raise ValueError("deliberate")
    return x * y


def dies(x, y):
    if not FIXED:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * y


def leaves(x, y):
    return x * y if FIXED else os._exit(0)


@triton.jit
def _scale(x_ptr, y_ptr, width, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    if MASKED:
        x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0)
    else:
        x = tl.load(x_ptr + row * width + columns)
    tl.store(y_ptr + row * width + columns, x + x, mask=inside)


@triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 4)], key=["count"])
@triton.jit
def _tuned(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < count), mask=at < count)


def tuned(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = (lambda meta: (-(-x.numel() // meta["BLOCK"]),)) if FIXED else (-(-x.numel() // 64),)
    if x.numel():
        _tuned[grid](x, y, x.numel())
    return y


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            block = triton.next_power_of_2(x.shape[1])
            _scale[(x.shape[0],)](x, y, x.shape[1], MASKED=FIXED, BLOCK=block)
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy + dy


@triton.jit
def _sum(x_ptr, y_ptr, count, SHIFT: tl.constexpr):
    row = tl.program_id(0)
    total = tl.sum(tl.zeros([4], dtype=tl.float32), 0).to(x_ptr.dtype.element_ty)
    total += tl.load(x_ptr + row) * 3
    tl.store(y_ptr + row, total)
    if SHIFT and row + 1 < count:
        tl.store(y_ptr + row + 1, total)


class Thrice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
        if x.numel():
            _sum[(x.numel(),)](x, y, x.numel(), SHIFT=not FIXED)
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy * 3


@torch.library.custom_op("scripts::product", mutates_args=())
def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).contiguous()


@op.register_fake
def _(x, y):
    return x.new_empty(x.shape, dtype=None if FIXED else torch.int8)


op.register_autograd(
    lambda ctx, dz: (dz * ctx.saved_tensors[1], dz * ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def scaled(x, y, *, scale):
    return x * y * (scale if FIXED else 1)


def check(fn, reference=product, **more):
    arguments = {"x": Argument("rows", "width"), "y": Argument("rows", "width")}
    return tpcheck.kernel_check(fn, reference=reference, arguments={**arguments, **more})


one = {"x": Argument("rows", "width")}
stride_ignored = tpcheck.kernel_check(
    strides, reference=two, arguments={**one, "y": one["x"]},
    memory=("contiguous", "transposed", "sliced", "padded"),
)
twice = check(Product.apply)
input_overwritten = check(overwrites)
aliased = tpcheck.kernel_check(
    Once.apply, reference=product, arguments={**one, "y": one["x"]},
    memory=("contiguous", "aliased"),
)
some = check(Some.apply)
leaf, keeping = check(Leaf.apply), check(Keeps.apply)
raising = check(raises)
dying = check(dies)
leaving = check(leaves)
nameless = tpcheck.kernel_check(
    lambda x: x + x if FIXED else x, reference=lambda x: 2 * x, arguments=one
)
custom_op = check(op)
with_options = tpcheck.kernel_check(
    scaled,
    reference=lambda x, y, *, scale: x * y * scale,
    arguments={**one, "y": Argument("rows", "width", gradient=False)},
    options={"scale": 0.5},
)
out_of_bounds = tpcheck.kernel_check(Scale.apply, reference=lambda x: 2 * x, arguments=one)
configured = tpcheck.kernel_check(
    tuned, reference=lambda x: 2 * x,
    arguments={"x": Argument("rows", "width", gradient=False)},
)
address = check(goes_by_address)
by_id = check(goes_by_id)
integers = tpcheck.kernel_check(
    keeps_integers,
    reference=lambda x, index: x[index.argsort(stable=True)],
    arguments={"x": Argument("rows"), "index": Argument("rows", integers=(0, 100))},
    sizes={"rows": st.integers(2, 40)},
)
giant = tpcheck.kernel_check(
    overwrites, reference=product, arguments={**one, "y": one["x"]}, memory=("giant",),
    sizes={"rows": st.integers(2, 4)},
)
reshaped = check(reshapes)
race = tpcheck.kernel_check(
    Thrice.apply,
    reference=lambda x: 3 * x,
    arguments={"x": Argument("n")},
    sizes={"n": st.integers(0, 40)},
)
calls = check(caches)
inference = check(infers)
half = partial(scaled, scale=0.5)
in_part = check(half, lambda x, y: x * y * 0.5)
unreachable = check(lambda x, y: x)
"""
