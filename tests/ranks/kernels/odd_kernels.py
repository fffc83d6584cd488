"""Triton kernels of y = 2 x that do what the interpreter does not do as a GPU does, and autotuned
ones.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import fdim
from triton.language.extra.libdevice import fma, isnan
from triton.language.math import abs as absolute


@triton.jit
def _assembly(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    y = tl.inline_asm_elementwise(
        "add.f32 $0, $1, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y_ptr + at, y, mask=at < count)


@triton.jit
def _atomic(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, x, mask=at < count)
    tl.atomic_add(y_ptr + at, x, mask=at < count)


@triton.jit
def _float8(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count).to(tl.float8e4nv)
    tl.store(y_ptr + at, 2.0 * x.to(tl.float32), mask=at < count)


@triton.jit
def _dot(x_ptr, y_ptr, count, PRECISION: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, 16)[None, :]
    x = tl.load(x_ptr + at + 0 * column, mask=(at < count) & (column == 0), other=0.0)
    twos = tl.full([16, 16], 2.0, dtype=x.dtype)
    y = tl.dot(x, twos, input_precision=PRECISION, out_dtype=x.dtype)
    tl.store(y_ptr + at + 0 * column, y, mask=(at < count) & (column == 0))


@triton.jit
def _scaled(x_ptr, y_ptr, count, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, x * scale / scale.to(tl.float32) * 2, mask=at < count)


@triton.jit
def _positive(x):  # type: ignore[no-untyped-def]
    return fdim(x, 0.0 * x)  # of CUDA's own module, by name


@triton.jit
def _device(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=1.0).to(tl.float32)
    y = libdevice.copysign(_positive(absolute(x)), x)
    y = tl.where(isnan(x) != 0, x, fma(y, libdevice.rint(0.0 * x) + 1.0, x))
    tl.store(y_ptr + at, y, mask=at < count)


@triton.jit
def _bessel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, libdevice.j0(x), mask=at < count)


@triton.autotune([triton.Config({"BLOCK": n}) for n in (4, 64)], key=["count"])
@triton.jit
def _tuned(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < count), mask=at < count)


@triton.autotune(
    [triton.Config({"BLOCK": n}) for n in (16, 64)], key=["count"], restore_value=["part_ptr"]
)
@triton.jit
def _summed(x_ptr, part_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32))
    tl.store(part_ptr + tl.program_id(0), part)


@triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 4)], key=["count"])
@triton.jit
def _small(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.static_assert(BLOCK < 64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < count), mask=at < count)


@triton.jit
def _taken(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, 3 * x, mask=at < count)
    tl.debug_barrier()
    old = tl.atomic_xchg(y_ptr + at, 2 * x, mask=at < count)
    tl.store(y_ptr + at, tl.where(old == 3 * x, 2 * x, 0.0), mask=at < count)


@triton.jit
def _doubled(x):
    return x + x


@triton.jit
def _mapped(x_ptr, y_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(y_ptr + at, tl.map_elementwise(_doubled, x), mask=at < count)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, launch: Any) -> Tensor:
        flat = x.contiguous()
        y = torch.empty_like(flat)
        if flat.numel():
            launch(flat, y, flat.numel())
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return 2 * grads[0], None


@triton.jit
def _loop(x_ptr, y_ptr, count, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    for i in range(tl.cdiv(count, BLOCK)):
        step = i.to(tl.int64) if WIDE else i
        far = step * 2147483647 // 2147483647 * BLOCK
        for _ in tl.static_range(1):
            at = far + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + at, mask=at < count, other=0.0)
            tl.store(y_ptr + at, 2.0 * x, mask=at < count)


def with_assembly(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _assembly[(1,)](x, y, n, BLOCK=256))


def with_atomics(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _atomic[(1,)](x, y, n, BLOCK=256))


def with_float8(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _float8[(1,)](x, y, n, BLOCK=256))


def with_a_map(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _mapped[(1,)](x, y, n, BLOCK=256))


def with_libdevice(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _device[(1,)](x, y, n, BLOCK=256))


def with_bessels_function(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _bessel[(1,)](x, y, n, BLOCK=256))


def with_tf32(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _dot[(1,)](x, y, n, PRECISION="tf32", BLOCK=256))


def with_ieee(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _dot[(1,)](x, y, n, PRECISION="ieee", BLOCK=256))


def with_a_cast_loop(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _loop[(1,)](x, y, n, WIDE=True, BLOCK=16))


def with_a_loop_that_overflows(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _loop[(1,)](x, y, n, WIDE=False, BLOCK=16))


def with_a_scalar(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _scaled[(1,)](x, y, n, 0.3, BLOCK=256))


def autotuned(x: Tensor) -> Tensor:
    def launch(x: Tensor, y: Tensor, count: int) -> None:
        _tuned[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, y, count)

    return _Twice.apply(x, launch)


def autotuned_in_parts(x: Tensor) -> Tensor:
    """Parts that a configuration leaves out are what they were before its benchmark."""

    def launch(x: Tensor, y: Tensor, count: int) -> None:
        parts = torch.zeros(triton.cdiv(count, 16))
        _summed[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, parts, count)
        torch.add(2 * x, 0 * parts.sum(), out=y)

    return _Twice.apply(x, launch)


def autotuned_where_it_compiles(x: Tensor) -> Tensor:
    def launch(x: Tensor, y: Tensor, count: int) -> None:
        _small[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, y, count)

    return _Twice.apply(x, launch)


def with_an_exchange(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _taken[(1,)](x, y, n, BLOCK=256))


def autotuned_for_one_grid(x: Tensor) -> Tensor:
    return _Twice.apply(x, lambda x, y, n: _tuned[(triton.cdiv(n, 64),)](x, y, n))
