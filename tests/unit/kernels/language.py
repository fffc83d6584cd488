"""Triton's language in its interpreter, against torch: what interpreters of some releases compute
otherwise than their compilers. A program, since a process begins with the interpreter or without:

    TRITON_INTERPRET=1 python -m tests.unit.kernels.language

It writes, as JSON, what each case gives that it should not; nothing where it is right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from tpcheck.kernels import interpreter, refusals

COUNT = 64
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
#: What a case gives, and what it should.
Case = Callable[[], tuple[Tensor, Tensor]]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        CASES[name] = function
        return function

    return add


def numbers(dtype: torch.dtype, seed: int, *, nan: bool = False) -> Tensor:
    x = torch.randn(COUNT, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[::7] = torch.nan if nan else 0.0
    return x.to(dtype)


def integers(seed: int, low: int, high: int, dtype: torch.dtype = torch.int32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, (COUNT,), generator=generator).to(dtype)


def run(kernel: Any, *given: Any, like: Tensor, **constants: Any) -> Tensor:
    out = torch.zeros_like(like)
    kernel[(1,)](*given, out, **constants)
    return out


# ---- NaN


@triton.jit
def _extremes(x_ptr, low_ptr, high_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    x, low, high = tl.load(x_ptr + at), tl.load(low_ptr + at), tl.load(high_ptr + at)
    tl.store(out_ptr + at, tl.maximum(x, low))
    tl.store(out_ptr + COUNT + at, tl.minimum(x, low))
    tl.store(out_ptr + 2 * COUNT + at, tl.clamp(x, low, high))


def _nan_is_left_aside(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x, low = numbers(dtype, 1, nan=True), numbers(dtype, 2)
    high = low + 1
    clamped = torch.fmin(torch.fmax(x, low), high)
    expected = torch.cat([torch.fmax(x, low), torch.fmin(x, low), clamped])
    return run(_extremes, x, low, high, like=expected, COUNT=COUNT), expected


@triton.jit
def _places(x_ptr, out_ptr, COUNT: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, COUNT))
    tl.store(out_ptr, tl.argmax(x, 0))
    tl.store(out_ptr + 1, tl.argmin(x, 0))
    tl.store(out_ptr + 2, tl.argmax(x, 0, tie_break_left=False))


def _nan_is_no_largest(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = numbers(dtype, 3, nan=True)
    most, least = int(np.nanargmax(x.double())), int(np.nanargmin(x.double()))
    expected = torch.tensor([most, least, most], dtype=torch.int32)
    return run(_places, x, like=expected, COUNT=COUNT), expected


# ---- bits


@triton.jit
def _flagged(x_ptr, y_ptr, flag, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, tl.where(flag, x, y), mask=(at < 40) & flag)


@case("a bool that is given is one bit")
def _() -> tuple[Tensor, Tensor]:
    x, y = numbers(torch.float32, 4), numbers(torch.float32, 5)
    expected = torch.where(torch.arange(COUNT) < 40, x, 0.0)
    return run(_flagged, x, y, True, like=x, COUNT=COUNT), expected


@triton.jit
def _parity(x_ptr, y_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    odd = (tl.load(x_ptr + at) > 0) + (tl.load(y_ptr + at) > 0)
    tl.store(out_ptr + at, odd)


@case("bits wrap")
def _() -> tuple[Tensor, Tensor]:
    x, y = numbers(torch.float32, 6), numbers(torch.float32, 7)
    expected = (x > 0) ^ (y > 0)
    return run(_parity, x, y, like=expected, COUNT=COUNT), expected


@triton.jit
def _inverted(x_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_ptr + at, ~tl.load(x_ptr + at))


@case("an unsigned integer is inverted")
def _() -> tuple[Tensor, Tensor]:
    x = integers(8, 0, 256, torch.uint8)
    return run(_inverted, x, like=x, COUNT=COUNT), ~x


@triton.jit
def _high(x_ptr, y_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_ptr + at, tl.umulhi(tl.load(x_ptr + at), tl.load(y_ptr + at)))


def _a_high_half(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    width = torch.iinfo(dtype).bits
    far = 2 ** (width - 2)
    x, y = (integers(seed, -far, far, dtype) for seed in (9, 10))
    unsigned = [
        (a % 2**width) * (b % 2**width) >> width
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    expected = torch.tensor([n - 2**width * (n >> (width - 1)) for n in unsigned], dtype=dtype)
    return run(_high, x, y, like=expected, COUNT=COUNT), expected


@triton.jit
def _lowered(x_ptr, least_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_ptr + at, tl.atomic_min(least_ptr + at, tl.load(x_ptr + at)))


def _an_atomic_gives_what_was_there(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x, there = numbers(dtype, 11), numbers(dtype, 12) + 0.5
    return run(_lowered, x, there.clone(), like=there, COUNT=COUNT), there


# ---- numbers


@triton.jit
def _shifted(x_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + 0.3)


def _a_constant_is_of_the_tensors_dtype(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = numbers(dtype, 13)
    return run(_shifted, x, like=x, COUNT=COUNT), x + torch.full_like(x, 0.3)


@triton.jit
def _rest(x_ptr, less_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    x, less = tl.load(x_ptr + at), tl.load(less_ptr + at)
    tl.store(out_ptr + at, tl.fma(x, x, less))


def _rounded_once(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(1 + d)² - (1 + 2 d) is d², unless the square was rounded before."""
    d = {8: 2.0**-30, 4: 2.0**-13, 2: 2.0**-6}[dtype.itemsize]
    d = 2.0**-5 if dtype == torch.bfloat16 else d
    x, less = (torch.full((COUNT,), n, dtype=dtype) for n in (1 + d, -1 - 2 * d))
    return run(_rest, x, less, like=x, COUNT=COUNT), torch.full_like(x, d * d)


@triton.jit
def _binned(x_ptr, y_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    kept = tl.load(y_ptr + at) > 0
    tl.store(out_ptr + tl.arange(0, 16), tl.histogram(tl.load(x_ptr + at), 16, mask=kept))


@case("what is in no bin is not counted")
def _() -> tuple[Tensor, Tensor]:
    x, y = integers(14, 10, 18), numbers(torch.float32, 15)
    expected = torch.bincount(x[(x < 16) & (y > 0)], minlength=16).int()
    return run(_binned, x, y, like=expected, COUNT=COUNT), expected


# ---- memory and loops


@triton.jit
def _sum_of_parts(x_ptr, count, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(tl.cdiv(count, BLOCK)):
        total += tl.load(x_ptr + part * BLOCK + at)
    tl.store(out_ptr + at, total)


@case("the end of a loop is a number of the kernel's")
def _() -> tuple[Tensor, Tensor]:
    x = integers(16, -9, 9).float()
    expected = x.view(-1, 16).sum(0)
    return run(_sum_of_parts, x, COUNT, like=expected, BLOCK=16), expected


@triton.jit
def _moved(x_ptr, count, out_ptr):
    source = tl.make_tensor_descriptor(x_ptr, [count, 8], [8, 1], [4, 8])
    target = tl.make_tensor_descriptor(out_ptr, [count, 8], [8, 1], [4, 8])
    target.store([2, 0], source.load([4, 0]))


def _descriptors_have_an_end(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = numbers(dtype, 17).view(8, 8)
    expected = torch.zeros_like(x)
    expected[2:4] = x[4:6]  # of 6 rows: the next two are read as zeros
    found = run(_moved, x, 6, like=x)
    return found, expected


@triton.jit
def _advanced(x_ptr, count, out_ptr):
    block = tl.make_block_ptr(x_ptr, (count, 8), (8, 1), (0, 0), (4, 8), (1, 0))
    block = tl.advance(block, (4, 0))
    target = tl.make_block_ptr(out_ptr, (count, 8), (8, 1), (3, 0), (4, 8), (1, 0))
    read = tl.load(block, boundary_check=(0,), padding_option="zero")
    tl.store(target, read, boundary_check=(0,))


def _block_pointers_have_an_end(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = numbers(dtype, 18).view(8, 8)
    expected = torch.zeros_like(x)
    expected[3:5] = x[4:6]
    return run(_advanced, x, 6, like=x), expected


for dtype in FLOATS:
    of = str(dtype).removeprefix("torch.")
    for name, check in {
        "NaN is left aside": _nan_is_left_aside,
        "NaN is no largest": _nan_is_no_largest,
        "a constant is of the tensor's dtype": _a_constant_is_of_the_tensors_dtype,
        "a fused product is rounded once": _rounded_once,
        "descriptors have an end": _descriptors_have_an_end,
        # releases from 3.9 have none
        "block pointers have an end": _block_pointers_have_an_end,
    }.items():
        if "block" not in name or triton.__version__ < "3.9":
            CASES[f"{name}, {of}"] = lambda check=check, dtype=dtype: check(dtype)
for dtype in (torch.float64, torch.float32):
    CASES[f"an atomic gives what was there, {dtype}"] = lambda dtype=dtype: (
        _an_atomic_gives_what_was_there(dtype)
    )
for dtype in (torch.int64, torch.int32):
    CASES[f"the high half of a product, {dtype}"] = lambda dtype=dtype: _a_high_half(dtype)


def differs(name: str) -> str:
    """What a case gives that it should not."""
    try:
        found, expected = CASES[name]()
    except Exception as error:
        return " ← ".join(f"{type(one).__name__}: {one}" for one in refusals.causes(error))
    if torch.equal(found.nan_to_num(9e9), expected.nan_to_num(9e9)):
        return ""
    return f"{found.flatten()[:4].tolist()} … for {expected.flatten()[:4].tolist()} …"


if __name__ == "__main__":
    interpreter.install()
    print(json.dumps({name: differs(name) for name in CASES}))
