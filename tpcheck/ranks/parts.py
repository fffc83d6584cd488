"""A rank's part of a tensor, and what the other ranks' parts are known by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.placement import Entry, Sharded, by_axis
from tpcheck.ranks.memory import kept_bytes
from tpcheck.tensors.among import Numbers

#: Bits that numbers in their places must say before they are taken for a whole tensor's. Fewer are
#: there by chance once in thousands of cases; more leave out small tensors.
TELLING = 14.0
#: Of how many missing numbers, about, it is asked first whether they are somewhere.
SOME = 32

Places = Sequence[Sequence[int]]


def places(entry: Entry, shape: Sequence[int], *, case: Case, rank: int) -> Places:
    """Where rank `rank`'s part of a tensor of this shape lies: by dim, its indices."""
    coordinates = case.coordinates(rank)
    every: list[Sequence[int]] = [range(size) for size in shape]
    for axis, own in by_axis(entry).items():
        if isinstance(own, Sharded):
            at, degree = every[own.dim], case.mesh.get(axis, 1)
            indices = own.indices(len(at), degree, coordinates.get(axis, 0))
            every[own.dim] = [at[i] for i in indices]
    return every


@dataclass(frozen=True)
class Part:
    """A rank's part of a tensor.

    Args:
        here: the part.
        full: the whole tensor's numbers.
        places: by dim, where the part's indices lie in the whole tensor's.
    """

    here: Tensor
    full: Tensor
    places: Places

    @property
    def is_view(self) -> bool:
        return bool(self.here.numel()) and kept_bytes(self.here) > self.here.nbytes

    def is_of(self, whole: Tensor) -> bool:
        """Whether a tensor has the numbers of the whole one."""
        return torch.equal(whole.to(self.full), self.full.to(whole.dtype).to(self.full))

    @cached_property
    def _whole(self) -> Tensor:
        """The whole tensor in the host's memory, float64 where it is of floats: not all that torch
        does is there for eight bits."""
        return (self.full.double() if self.full.is_floating_point() else self.full).cpu()

    @cached_property
    def missing(self) -> Tensor:
        """The numbers of the whole tensor that the part has not."""
        elsewhere = torch.ones(self.full.shape, dtype=torch.bool)
        indices = (torch.tensor([*one], dtype=torch.int64) for one in self.places)
        elsewhere[torch.meshgrid(*indices, indexing="ij")] = False
        return self._whole[elsewhere]

    def sample(self, own: Numbers) -> Tensor:
        """Some of `lacking`, none where there are few of it."""
        step = max(1, self.missing.numel() // SOME)
        return _lacking(self.missing[::step], own)

    def lacking(self, own: Numbers) -> Tensor:
        """The missing numbers that tell it: none that the rank has elsewhere, and no zeros.

        Args:
            own: all numbers that the rank is to have, float64.
        """
        return _lacking(self.missing, own)

    def tells(self, own: Numbers) -> bool:
        """Whether its missing numbers, each in its place, are not there by chance."""
        lacking, single, digits = self.lacking(own), 0, 0.0
        if not lacking.numel():
            return False
        if self.full.is_floating_point():
            values, count = self._whole.unique(return_counts=True)
            alone = values[(count == 1) & (values != values.round())]
            single = int(torch.isin(lacking, alone).sum())
            digits = -math.log2(torch.finfo(self.here.dtype).eps)
        others = (lacking.numel() - single) * math.log2(lacking.unique().numel())
        return single * digits + others >= TELLING


def _lacking(missing: Tensor, own: Numbers) -> Tensor:
    if missing.is_complex():
        return missing[:0]
    return missing[(missing != 0) & ~own.have(missing.double())]
