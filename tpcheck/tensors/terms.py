"""Terms of a sum: whether ranks hold such, and what they are given of an input that is
`Partial`."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from tpcheck.axes import along
from tpcheck.case import Case
from tpcheck.placement import Entry, Partial, by_axis, take


def has_terms(entry: Entry) -> bool:
    """Whether ranks hold terms of a tensor along some axis."""
    return any(isinstance(own, Partial) for own in by_axis(entry).values())


def term(name: str, full: Tensor, entry: Entry, case: Case, rank: int) -> Tensor:
    """Rank `rank`'s part of an input, and of that its term where the entry says `Partial`.

    The terms add up to it to the bit in any dtype and any order. Two ranks have terms of all
    numbers, of opposite signs (`_opposed`): what is left out of the sum is missing, and what is not
    linear is not the same before the sum and after it. In half of the cases in float64, of
    integers, and of what that could make round or overflow, each number is one rank's, by chance,
    and zero on the others along the axis: that shows what only chooses among numbers. Products of
    such terms round otherwise than those of the whole, which no other dtype's bounds allow for.

    Args:
        name: of the input, by which it is drawn whose a number is.
        full: the whole input.
    """
    part = take(full, entry, case=case, rank=rank)
    axes = [
        a for a, own in by_axis(entry).items() if own == Partial() and along(a, case, rank)[0] > 1
    ]
    for axis in axes:
        size, at = along(axis, case, rank)
        drawn = torch.Generator().manual_seed(zlib.crc32(f"{name} {axis}".encode()) + case.seed)
        first = int(torch.randint(2 * size, (), generator=drawn))
        coarse = full.is_floating_point() and full.dtype != torch.float64
        if (coarse or first < size) and axis == axes[0] and _may_be_opposed(full, case):
            part = _opposed(part, (at - first) % size)
        else:
            whose = torch.randint(size, full.shape, generator=drawn)
            mine = take(whose, entry, case=case, rank=rank).to(part.device) == at
            part = torch.where(mine, part, torch.zeros_like(part))
    return part


def _may_be_opposed(full: Tensor, case: Case) -> bool:
    """Whether the terms and what is made of them stay finite, and exact where sums of the case's
    small integers are."""
    if not full.is_floating_point():
        return full.dtype != torch.bool and not full.is_complex()
    if full.itemsize == 1 or case.integers or not full.numel():
        return False
    return float(full.abs().max()) < torch.finfo(full.dtype).max ** 0.5 / 2


def _opposed(part: Tensor, turn: int) -> Tensor:
    """The term of the rank whose turn it is: the first has twice the number, the second takes it
    away once. So no sum of any of them, nor of their multiples, rounds where that of the number
    does not. Of an integer, which may be a count, they have half each."""
    if turn > 1:
        return torch.zeros_like(part)
    if part.is_floating_point():
        return -part if turn else 2 * part
    half = torch.div(part, 2, rounding_mode="trunc")
    return part - half if turn else half
