"""How a rank's random mask may be read as its part of the reference's: split along one dim, with
dims in another order, some of them folded into one, or one cut in several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations
from operator import mul

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.placement import Placement, Replicate, Shard, take

#: Dims of a mask whose order may be another: those of attention's weights, and one more. All orders
#: of more would be too many to try.
MOST_DIMS = 5


@dataclass(frozen=True)
class Reading:
    """Of a mask of some number of dims.

    Args:
        order: the reference's dims in the order in which the rank has them.
        dim: of the reference's, along which tp splits it; None where ranks have all of it.
    """

    order: tuple[int, ...]
    dim: int | None = None

    @property
    def entry(self) -> dict[str, Placement]:
        return {"tp": Replicate() if self.dim is None else Shard(self.dim)}

    def part(self, full: Tensor, *, case: Case, rank: int) -> Tensor:
        """What the rank has of it, dims in its order, before any is folded."""
        return take(full, self.entry, case=case, rank=rank).permute(self.order)


def readings(
    full: Sequence[int], own: Sequence[int], *, case: Case, rank: int
) -> Iterator[Reading]:
    """All by which a rank's mask of shape `own` is a part of one of shape `full`, the likely ones
    first: dims in their own order, and no batch that is split."""
    whole = torch.empty(()).expand(tuple(full))
    dims = [None, *range(1, len(full)), 0] if len(full) else [None]
    for order in permutations(range(len(full))) if len(full) <= MOST_DIMS else [range(len(full))]:
        for dim in dims:
            reading = Reading(tuple(order), dim)
            if case.tp == 1 and dim is not None:
                continue
            if _folds(reading.part(whole, case=case, rank=rank).shape, own):
                yield reading


def _folds(shape: Sequence[int], own: Sequence[int]) -> bool:
    """Whether one is the other with neighbours folded into one dim."""
    mine, theirs = set(accumulate(shape, mul)), set(accumulate(own, mul))
    whole = math.prod(shape) == math.prod(own)
    return whole and (mine | {1} >= theirs or theirs | {1} >= mine)
