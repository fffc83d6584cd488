"""Triton kernels that sum columns or all elements, whose programs meet in memory, in order and
not; and such as promise the compiler what does not hold."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _locked(  # type: ignore[no-untyped-def]
    x_ptr, sums_ptr, lock_ptr, width, GROUPS: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr
):
    """As the backward of Triton's tutorial on layer norm: rows share buffers, under locks."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    group = row % GROUPS
    lock = lock_ptr + group
    partial = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    sums = sums_ptr + group * width + columns
    if HOW == "tries once":
        tl.atomic_cas(lock, 0, 1)
    else:
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    if tl.load(lock + GROUPS) == 0:
        tl.atomic_xchg(lock + GROUPS, 1)
    else:
        partial += tl.load(sums, mask=mask, other=0.0)
    if HOW == "unlocks early":
        tl.atomic_xchg(lock, 0)
    tl.store(sums, partial, mask=mask)
    tl.debug_barrier()
    if HOW == "unlocks relaxed":
        tl.atomic_xchg(lock, 0, sem="relaxed")
    elif HOW != "unlocks early":
        tl.atomic_xchg(lock, 0)


@triton.jit
def _arrives(  # type: ignore[no-untyped-def]
    x_ptr,
    parts_ptr,
    count_ptr,
    sum_ptr,
    count,
    SEM: tl.constexpr,
    LAST: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The last program to arrive adds up what all have left."""
    own = tl.program_id(0)
    at = own * BLOCK + tl.arange(0, BLOCK)
    partial = tl.sum(tl.load(x_ptr + at, mask=at < count, other=0.0))
    tl.store(parts_ptr + own, partial)
    tl.debug_barrier()
    last = tl.num_programs(0) - 1
    before = tl.atomic_add(count_ptr, 1, sem=SEM)
    if (before == last) if LAST else (own == last):
        parts = tl.arange(0, PARTS)
        tl.store(sum_ptr, tl.sum(tl.load(parts_ptr + parts, mask=parts <= last, other=0.0)))


@triton.jit
def _adds(  # type: ignore[no-untyped-def]
    x_ptr, sum_ptr, y_ptr, count, KEPT: tl.constexpr, BLOCK: tl.constexpr
):
    """The program with the highest number hopes that all others have added by now."""
    own = tl.program_id(0)
    at = own * BLOCK + tl.arange(0, BLOCK)
    before = tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + at, mask=at < count, other=0.0)))
    if KEPT:
        tl.store(y_ptr + 1 + own, before)
    if own == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.load(sum_ptr))


@triton.jit
def _unmasked(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, width, LARGEST: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width)
    tl.store(y_ptr + row, tl.max(x, 0) if LARGEST else tl.sum(x, 0))


@triton.jit
def _promised(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, width, WHAT: tl.constexpr, BLOCK: tl.constexpr
):
    start = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    if WHAT == "assume":
        tl.assume(width % 4 == 0)
    if WHAT == "multiple_of":
        start = tl.multiple_of(start, 4)
    if WHAT == "max_contiguous":
        columns = tl.max_contiguous(columns % width, BLOCK)
    if WHAT == "max_constancy":
        columns = tl.max_constancy(columns, 4)
    if WHAT == "kept":
        columns = tl.max_contiguous(tl.multiple_of(columns, BLOCK), BLOCK)
        start = tl.multiple_of(start, 1)
    x = tl.load(x_ptr + start + columns, mask=columns < width, other=0.0)
    tl.store(y_ptr + start + columns, 2 * x, mask=columns < width)


@triton.jit
def _random(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, count, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    hashed = at.to(tl.uint32) * 3266489917 + 668265263
    drawn = tl.randint(7, at) % 2 == 2
    drawn = drawn | (tl.rand(7, at) >= 1.0) | (tl.randn(7, at) > 100.0) | (hashed < 0)
    tl.store(y_ptr + at, tl.where(drawn, 0.0, 2 * x), mask=at < count)


def locked(x: Tensor, *, how: str = "") -> Tensor:
    """The sums over rows."""
    x = x.contiguous()
    rows, width = x.shape
    found, lock = x.new_zeros((2, width)), torch.zeros(4, dtype=torch.int32)
    if x.numel():
        size = triton.next_power_of_2(width)
        _locked[(rows,)](x, found, lock, width, GROUPS=2, HOW=how, BLOCK=size)
    return found.sum(0)


def arriving(x: Tensor, *, sem: str = "acq_rel", last: bool = True) -> Tensor:
    """The sum of all."""
    x = x.contiguous()
    programs = triton.cdiv(x.numel(), 16)
    parts, found = x.new_empty(programs), x.new_zeros(())
    count = torch.zeros(1, dtype=torch.int32)
    if programs:
        size = triton.next_power_of_2(programs)
        constants: dict[str, Any] = {"SEM": sem, "LAST": last, "PARTS": size, "BLOCK": 16}
        _arrives[(programs,)](x, parts, count, found, x.numel(), **constants)
    return found


def adding(x: Tensor, *, kept: bool) -> Tensor:
    """The sum of all."""
    x = x.contiguous()
    programs = triton.cdiv(x.numel(), 16)
    found, y = x.new_zeros(1), x.new_zeros(1 + programs)
    if programs:
        _adds[(programs,)](x, found, y, x.numel(), KEPT=kept, BLOCK=16)
    return y[0].clone()


@triton.jit
def _counted(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, width, ALONG: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0)
    found = tl.max(tl.cumsum(x, 0), 0) if ALONG else tl.sum(x, 0)
    tl.store(y_ptr + row, found.to(tl.int64))


def counted(x: Tensor, *, along: bool) -> Tensor:
    """Sums of rows of int32 that are large, as int64."""
    large = torch.full(x.shape, 2**30, dtype=torch.int32)
    y = torch.empty(x.shape[0], dtype=torch.int64)
    size = triton.next_power_of_2(x.shape[1])
    _counted[(x.shape[0],)](large, y, x.shape[1], ALONG=along, BLOCK=size)
    return y


@triton.jit
def _looked_up(  # type: ignore[no-untyped-def]
    i_ptr, table_ptr, y_ptr, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    lanes, columns = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    index = tl.load(i_ptr + lanes, mask=lanes < count)
    found = tl.load(table_ptr + index[:, None] * WIDTH + columns[None, :])
    inside = (lanes < count)[:, None]
    tl.store(y_ptr + lanes[:, None] * WIDTH + columns[None, :], found, mask=inside)


def looked_up(x: Tensor) -> Tensor:
    """A row of a table of 64 for each row of x; where there is none it is read, too."""
    table = x.flatten()[:1].expand(64, 4).contiguous()
    index, y = torch.arange(x.shape[0]), x.new_empty(x.shape[0], 4)
    size = triton.next_power_of_2(x.shape[0] + 1)
    _looked_up[(1,)](index, table, y, x.shape[0], WIDTH=4, BLOCK=size)
    return y


def without_other(x: Tensor, *, largest: bool) -> Tensor:
    """The sum, or the largest, of each row."""
    x = x.contiguous()
    y = x.new_empty(x.shape[0])
    if x.numel():
        size = triton.next_power_of_2(x.shape[1])
        _unmasked[(x.shape[0],)](x, y, x.shape[1], LARGEST=largest, BLOCK=size)
    return y


def promising(x: Tensor, *, what: str) -> Tensor:
    """2 x."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        size = triton.next_power_of_2(x.shape[1])
        _promised[(x.shape[0],)](x, y, x.shape[1], WHAT=what, BLOCK=size)
    return y


def random(x: Tensor) -> Tensor:
    """2 x."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        _random[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
