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

from tpcheck.bounds.spread import Spread
from tpcheck.tensors.draw import Draw

# All integers up to here are numbers of the dtype.
LARGEST = {
    torch.float64: 2.0**53,
    torch.float32: 2.0**24,
    torch.bfloat16: 2.0**8,
    torch.float16: 2.0**11,
}


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
            sizes of each element's terms. What comes after an SGD step is no sum of integers, and
            keeps its bounds; so does what crosses the borders of modules inside.
    """
    out = {}
    for key, spread in found.items():
        kind, name = key
        other = kind in ("param", "border") or name.endswith("@step")
        exact = not other and (not sizes[key].numel() or sizes[key].max() <= LARGEST[dtype])
        zeros = torch.zeros_like(spread.sigma)
        out[key] = Spread(zeros, 1, 1, spread.chance) if exact else spread
    return out
