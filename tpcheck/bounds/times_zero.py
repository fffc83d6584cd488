"""A number that may overflow, times zero: NaN in a candidate in which it does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import OVERFLOW
from tpcheck.bounds.spread import UNSURE

#: Products → where their factors stand among the arguments.
FACTORS = {
    **dict.fromkeys(("mul", "mm", "bmm", "mv", "dot"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm"), (1, 2)),
}
#: Beyond it a number in a noisy run is one that may overflow, whatever it went through since.
LARGE = math.sqrt(UNSURE)


def factors(name: str, args: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
    """Those of an operator that is a product of tensors."""
    if (places := FACTORS.get(name)) is None or len(args) <= max(places):
        return None
    left, right = (args[place] for place in places)
    return (left, right) if isinstance(left, Tensor) and isinstance(right, Tensor) else None


def mark(name: str, left: Tensor, right: Tensor, out: Tensor) -> None:
    """In `out`, the product in noisy runs, what may be NaN stands out as what may overflow does.

    Args:
        left, right: its factors in the same runs, or in all.
    """
    large = [_may_overflow(factor) for factor in (left, right)]
    if not any(bool(there.any()) for there in large):
        return
    zero = [factor == 0 for factor in (left, right)]
    pairs = ((large[0], zero[1]), (zero[0], large[1]))
    if name == "mul":
        lost = [a & b for a, b in pairs]
    else:
        lost = [a.double() @ b.double() > 0 for a, b in pairs]
    out.masked_fill_(torch.logical_or(*lost), math.sqrt(OVERFLOW))


def _may_overflow(factor: Tensor) -> Tensor:
    if factor.is_floating_point() or factor.is_complex():
        return factor.abs() > LARGE
    return torch.zeros_like(factor, dtype=torch.bool)  # a mask
