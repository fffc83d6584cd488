"""The norm of all gradients, of those that a candidate has: the norm that it must say, and how far
rounding may move that.

What forward and backward round is in the gradients, which are compared by themselves. What is left
is the rounding of the norm's own arithmetic, which is far less, and so shows what the norm of the
reference's gradients would hide: a parameter counted twice whose share is small.

Letters: p the norm's order, S = Σ|g|^p, u and v the unit roundoffs of what is stored and of what
accumulates, N parameters, R ranks, K elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import TINY, UNIT_ROUNDOFF, steps
from tpcheck.bounds.floor import KNOWN
from tpcheck.bounds.spread import MARGIN, Spread
from tpcheck.case import Case
from tpcheck.placement import Entry, Sharded, by_axis, holds, is_sharded, take

#: What may be lost below the dtype's smallest number, as a share of u. With more, a norm of powers
#: that vanish would be called wrong; with less, small norms in float16 would not be judged.
LOST = 1 / 16


class Expected(NamedTuple):
    """A candidate's norm [], float64, by its own gradients, and how far it may be off."""

    value: Tensor
    spread: Spread


def peers(case: Case, rank: int) -> list[int]:
    """The ranks that have the data of this one."""
    own = case.dp_coordinate(rank)
    return [r for r in range(case.world_size) if case.dp_coordinate(r) == own]


def owners(entries: Iterable[Entry], case: Case, rank: int, *, shared: bool) -> list[int]:
    """The ranks that together have the gradients that are placed so: those with the data of this
    one; all where one gradient of all data is cut along dp, as FSDP leaves it.

    Args:
        shared: whether gradients are the same on all dp coordinates.
    """
    if shared and any(is_sharded(entry, case, axis="dp") for entry in entries):
        return list(range(case.world_size))
    return peers(case, rank)


def is_apart(entry: Entry, case: Case, *, shared: bool) -> bool:
    """Whether ranks with other data have the rest of a gradient, of another one."""
    return not shared and is_sharded(entry, case, axis="dp")


def shares(entry: Entry, shape: torch.Size, case: Case, ranks: list[int]) -> dict[int, Tensor]:
    """Of a tensor of this shape: by how much each element counts on each of the ranks that have it,
    so that it counts once in all: one over the number of ranks that have it."""
    having = [r for r in ranks if holds(entry, case=case, rank=r)]
    if not any(isinstance(own, Sharded) for own in by_axis(entry).values()):
        return dict.fromkeys(having, torch.tensor(1.0 / max(1, len(having)), dtype=torch.float64))
    places = torch.arange(math.prod(shape)).reshape(shape)
    own = {r: take(places, entry, case=case, rank=r) for r in having}
    every = torch.cat([place.reshape(-1) for place in own.values()])
    counts = every.bincount(minlength=places.numel()).double()
    return {r: 1.0 / counts[place] for r, place in own.items()}


def part(gradient: Tensor, share: Tensor, order: float) -> Tensor:
    """What a rank adds of one gradient [3]: Σ|g|^p, Σ|g|^2p and K, each element by its share; of
    the infinity norm the largest |g| in place of the first two."""
    size = gradient.detach().abs().double()
    count = (share.to(size.device) * torch.ones_like(size)).sum()
    if not size.numel():
        return size.new_zeros(3)
    if order == math.inf:
        return torch.stack([size.amax(), size.amax().square(), count])
    powers, share = size**order, share.to(size.device)
    return torch.stack([(powers * share).sum(), (powers.square() * share).sum(), count])


def together(parts: Tensor, order: float) -> Tensor:
    """Of parts [ranks, *] those of all ranks [*]."""
    if order != math.inf:
        return parts.sum(0)
    return torch.cat([parts[..., :2].amax(0), parts[..., 2:].sum(0)], -1)


def expected(
    parts: Tensor, order: float, dtype: torch.dtype, ranks: int, returned: Tensor
) -> Expected | None:
    """The norm; None where it can't be said, or sums of powers may leave the dtype's range.

    The errors' variances, relative to the norm: gradients, squares of them, each parameter's part
    (stored, u²/3 each); the sum of powers (K·v²/3p², K² where they are equal); sums over parameters
    and ranks, and what is returned, in the case's dtype only where that could be the number that
    was returned.

    Args:
        parts: of all ranks, by parameter [N, 3].
        dtype: the case's.
        ranks: R.
        returned: the norm, as the candidate has it.
    """
    powers, squares, count = together(parts, order)
    total = float(powers)
    terms = 1.0 if order == math.inf else max(1.0, float(count))
    u, of_floats = UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF[torch.float32]
    v = min(u, of_floats)
    least, most = terms * TINY[dtype] / (LOST * u), torch.finfo(dtype).max / 4
    if not (math.isfinite(float(squares)) and least < total < most):
        return None
    coarse = bool(returned.double() == returned.to(dtype).double())
    inverse = 0.0 if order == math.inf else 1.0 / order
    spread_out = float(squares) / total**2  # 1 / K where all are equal, at most 1
    each = float((parts[:, 0] / total).square().sum()) if inverse else 1.0
    stored = (1 + inverse**2) * spread_out + each * (inverse > 0)
    accumulated = float(steps(powers, squares, count)) * inverse**2
    accumulated += (math.log(total) * inverse) ** 2 + 4  # of a power that is a root, and functions
    if coarse:
        stored += 1 + (len(parts) + ranks) * inverse**2
    else:
        stored += inverse**2
    value = total if order == math.inf else total**inverse
    sigma = math.sqrt((u**2 * stored + v**2 * accumulated) / 3) * value * MARGIN.get(dtype, 1.0)
    of_norm = torch.tensor(value, dtype=torch.float64)
    return Expected(of_norm, Spread(torch.tensor(sigma, dtype=torch.float64), KNOWN, KNOWN))
