"""Cases in which every sum is exact: small integers, and no bound but equality.

Where every output and gradient is a sum of products of the drawn numbers (`Spec(linear=True)`) and
those are ±1 and ±2, every partial sum is an integer, whatever the order in which it is taken. While
the sum of the terms' sizes stays within the integers that the dtype holds without a gap, nothing
rounds, on any rank and in any collective: σ = 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.bounds.spread import Spread
from tpcheck.tensors.draw import Draw
from tpcheck.tensors.names import STEP, InPass, Shelf
from tpcheck.vocabulary import Kind

#: All integers up to here are numbers of the dtype. Larger, and sums that round would be asked to
#: be exact (false alarms); smaller, and cases that could be exact keep their bounds.
LARGEST_INTEGER = {dtype: 1 / u for dtype, u in UNIT_ROUNDOFF.items()}


def integers(draw: Draw, name: str, tensor: Tensor) -> Tensor:
    """±1 and ±2 in the shape of `tensor`, float64."""
    shape = tuple(tensor.shape)
    sign = draw.integers(f"{name} sign", 0, 2, *shape) * 2 - 1
    return (sign * draw.integers(f"{name} size", 1, 3, *shape)).double()


def spreads(
    found: Mapping[tuple[str, str], Spread],
    sizes: Mapping[tuple[str, str], Tensor],
    dtype: torch.dtype,
) -> dict[tuple[str, str], Spread]:
    """`found`, with σ = 0 of every tensor whose sums are exact.

    Args:
        sizes: the same tensors, computed from the sizes of the drawn numbers: the sum of the
            sizes of each element's terms. What comes after a step is not a sum of integers, and
            keeps its bounds; so does what crosses the boundaries of modules inside.
    """

    def exact(key: tuple[str, str]) -> bool:
        kind, name = key
        at = InPass.parse(name).at
        after_step = at == STEP or at.step > 0
        if kind in (Kind.PARAM, Kind.OPTIMIZER_STATE, Shelf.BORDER) or after_step:
            return False
        return not sizes[key].numel() or bool(sizes[key].max() <= LARGEST_INTEGER[dtype])

    return {
        key: Spread(torch.zeros_like(spread.sigma), 1, 1, spread.chance) if exact(key) else spread
        for key, spread in found.items()
    }
