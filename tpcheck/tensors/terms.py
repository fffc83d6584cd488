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

    Each number is one rank's, by chance, and zero on the others along the axis, so that the terms
    add up to it to the bit in any dtype and any order.

    Args:
        name: of the input, by which it is drawn whose a number is.
        full: the whole input.
    """
    part = take(full, entry, case=case, rank=rank)
    for axis, own in by_axis(entry).items():
        size, at = along(axis, case, rank)
        if own == Partial() and size > 1:
            drawn = torch.Generator().manual_seed(zlib.crc32(f"{name} {axis}".encode()) + case.seed)
            whose = torch.randint(size, full.shape, generator=drawn)
            mine = take(whose, entry, case=case, rank=rank).to(part.device) == at
            part = torch.where(mine, part, torch.zeros_like(part))
    return part
