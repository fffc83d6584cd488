"""A rank's part of a tensor, and what the other ranks' parts are known by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tpcheck.ranks.memory import has_storage, kept_bytes
from tpcheck.tensors.among import Numbers
from tpcheck.tensors.places import Places

#: Bits that numbers in their places must say before they are taken for a whole tensor's. Fewer are
#: there by chance once in thousands of cases; more leave out small tensors.
TELLING = 14.0
#: Of how many missing numbers, about, it is asked first whether they are somewhere.
SOME = 32
#: Of those that are not there, how many are looked for among the rank's own.
FEW = 8


class Own:
    """The numbers that a rank is to have, as each dtype has them: what another rank has may round
    to one of them.

    Args:
        tensors: all of them; what has no real numbers is left out.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        real = (t for t in tensors if has_storage(t) and not t.is_complex())
        self._tensors = [tensor.detach().as_subclass(Tensor).flatten() for tensor in real]
        self._numbers: dict[torch.dtype, Numbers] = {}

    def of(self, dtype: torch.dtype) -> Numbers:
        """In a floating dtype."""
        if dtype not in self._numbers:
            each = (tensor.to(dtype).cpu() for tensor in self._tensors)
            self._numbers[dtype] = Numbers(torch.cat([torch.empty(0, dtype=dtype), *each]))
        return self._numbers[dtype]


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
        return has_numbers(whole, self.full)

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

    @cached_property
    def _telling(self) -> Tensor:
        """The missing numbers that may tell it: no zeros, which are everywhere."""
        return self.missing[:0] if self.missing.is_complex() else self.missing[self.missing != 0]

    def some(self, dtype: torch.dtype) -> Tensor:
        """A few of the missing numbers, some of which the rank may have elsewhere."""
        few = self._telling[:: max(1, self._telling.numel() // SOME)].to(dtype)
        return few[_is_number(few)]

    def lacking(self, own: Own, dtype: torch.dtype) -> Tensor:
        """The missing numbers that tell it, in a floating dtype: none that the rank is to have, and
        no zeros."""
        numbers = self._telling.to(dtype)
        return numbers[_is_number(numbers) & ~own.of(dtype).have(numbers)]

    def may_be_among(self, numbers: Numbers, own: Own) -> bool:
        """Whether a few of the missing numbers are among others, or the rank's own."""
        some = self.some(numbers.dtype)
        absent = some[~numbers.have(some)]
        return bool(own.of(numbers.dtype).have(absent[:FEW]).all()) and bool(some.numel())

    def tells(self, own: Own) -> bool:
        """Whether its missing numbers, each in its place, are not there by chance."""
        lacking, single, digits = self.lacking(own, torch.float64), 0, 0.0
        if not lacking.numel():
            return False
        if self.full.is_floating_point():
            values, count = self._whole.unique(return_counts=True)
            alone = values[(count == 1) & (values != values.round())]
            single = int(torch.isin(lacking, alone).sum())
            digits = -math.log2(torch.finfo(self.here.dtype).eps)
        others = (lacking.numel() - single) * math.log2(lacking.unique().numel())
        return single * digits + others >= TELLING


def has_numbers(tensor: Tensor, full: Tensor) -> bool:
    """Whether a tensor has those of a whole one, as its dtype has them."""
    return torch.equal(tensor.to(full), full.to(tensor.dtype).to(full))


def _is_number(numbers: Tensor) -> Tensor:
    """bool: which are neither too small nor too large for their dtype."""
    return (numbers != 0) & numbers.isfinite()
