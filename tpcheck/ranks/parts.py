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
from tpcheck.tensors.among import are_among

#: Bits that numbers in their places must say before they are taken for a whole tensor's. Fewer are
#: there by chance once in thousands of cases; more leave out small tensors.
TELLING = 14.0

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
        each: of every rank, by dim, where its part's indices lie in the whole tensor's.
        rank: whose it is.
    """

    here: Tensor
    full: Tensor
    each: Sequence[Places]
    rank: int

    @property
    def places(self) -> Places:
        return self.each[self.rank]

    @property
    def is_view(self) -> bool:
        return bool(self.here.numel()) and kept_bytes(self.here) > self.here.nbytes

    @cached_property
    def missing(self) -> Tensor:
        """The numbers of the whole tensor that are in no part like this one, one after the other:
        another rank's may have the same numbers in the same order."""
        own = self._numbers(self.places)
        seen, found = {str(self.places)}, [own.new_empty(0)]
        for places in self.each:
            if str(places) not in seen and not torch.equal(part := self._numbers(places), own):
                found.append(part.flatten())
            seen.add(str(places))
        return torch.cat(found)

    def _numbers(self, places: Places) -> Tensor:
        indices = (torch.tensor([*one], dtype=torch.int64) for one in places)
        at = torch.meshgrid(*indices, indexing="ij")
        return self._comparable[at]

    @cached_property
    def _comparable(self) -> Tensor:
        """The whole tensor: not all that torch does is there for floats of eight bits."""
        return self.full.double() if self.full.is_floating_point() else self.full

    @cached_property
    def tells(self) -> bool:
        """Whether its missing numbers, each in its place, are not there by chance."""
        if self.full.is_complex() or not self.missing.numel():
            return False
        values, count = self._comparable.unique(return_counts=True)
        single, digits = 0, 0.0
        if values.is_floating_point():
            alone = values[(count == 1) & (values != values.round())]
            single = int(torch.isin(self.missing, alone).sum())
            digits = -math.log2(torch.finfo(self.here.dtype).eps)
        return single * digits + (self.missing.numel() - single) * math.log2(len(values)) >= TELLING

    def is_of(self, whole: Tensor) -> bool:
        """Whether a tensor has the numbers of the whole one."""
        return torch.equal(whole.to(self.full), self.full.to(whole.dtype).to(self.full))

    def is_among(self, numbers: Tensor) -> bool:
        """Whether its missing numbers are among others, in whatever order. Numbers that are in it,
        too, tell nothing."""
        if not (self.missing.is_floating_point() and numbers.numel()):
            return False
        own = self._numbers(self.places)
        return are_among(self.missing[~torch.isin(self.missing, own)].to(numbers.dtype), numbers)
