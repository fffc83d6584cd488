"""Whether numbers are among others, in any order, and not by chance."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from tpcheck.tensors.forms import OF_BITS

#: Numbers on either side of each that are looked up, too: half an octave of bfloat16.
BESIDE = 64
#: The same of those that have no more digits than it has: some octaves of a power of two.
ALIKE = 8
#: Of how many numbers, about, those beside them are looked up.
SOME = 1024
#: So many different numbers, and that three of four are, tell more than a grid of few values does,
#: which any two tensors have in common.
MANY = 64

#: How probable it may be that as many are there by chance.
CHANCE = 1e-4

#: Of all numbers of a short dtype: what is read as another dtype than it is soon has all of them,
#: and numbers that are drawn from a distribution a tenth.
MOST = 0.5

#: So many times those that are asked for are put in order; then those that are there.
FEW = 4


class Numbers:
    """Some that others are looked up among.

    Args:
        numbers: of a floating dtype, any shape.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.dtype = numbers.dtype
        self._bits = _bits(numbers.flatten())
        self._asked = 0

    def __len__(self) -> int:
        return self._bits.numel()

    @property
    def are_most(self) -> bool:
        """Whether they are most numbers of their dtype: to be among them is nothing then."""
        return self.dtype.itemsize <= 2 and bool(self._table.float().mean() > MOST)

    def have(self, numbers: Tensor) -> Tensor:
        """bool: which of some numbers are among them, bit for bit.

        Args:
            numbers: of the same dtype, one dim.
        """
        return self.have_bits(_bits(numbers))

    def have_bits(self, bits: Tensor) -> Tensor:
        if not (self._bits.numel() and bits.numel()):
            return torch.zeros(bits.shape, dtype=torch.bool)
        if self.dtype.itemsize <= 2:
            return self._table[bits.int() - torch.iinfo(bits.dtype).min]
        self._asked += 1
        if self._asked <= FEW and bits.numel() < self._bits.numel():
            return _seen(bits, self._bits)
        at = torch.searchsorted(self._ordered, bits).clamp_(max=len(self._ordered) - 1)
        return self._ordered[at] == bits

    @cached_property
    def _table(self) -> Tensor:
        """Of each pattern of bits of a short dtype whether it is there."""
        short = torch.iinfo(self._bits.dtype)
        table = torch.zeros(short.max - short.min + 1, dtype=torch.bool)
        table[self._bits.int() - short.min] = True
        return table

    @cached_property
    def _ordered(self) -> Tensor:
        return self._bits.sort().values


def are_among(numbers: Tensor, others: Numbers) -> bool:
    """Whether each of these numbers is among the others, where chance does not explain it: the
    share of the nearest ones that is there, too, says how often it would, of those of their dtype
    or of those on their grid, what is more. Whole numbers tell nothing, zeros and ones are
    everywhere; nor do few that come again and again.

    Args:
        numbers: of the others' dtype, any shape.
    """
    own = _bits(numbers[numbers != numbers.round()])
    count, own = own.numel(), own.unique()
    if own.numel() < min(count, MANY) * 3 / 4:
        return False
    if not own.numel() or not bool(others.have_bits(own).all()):
        return False
    some = own[:: max(1, own.numel() // SOME)]
    there, asked = _there(some[:, None] + _around(BESIDE, own.dtype), own, others)
    share = (there + 1) / (asked + 1)
    for near in _on_their_grid(some, others.dtype):
        there, asked = _there(near, own, others)
        share = max(share, there / max(asked, 1))
    return bool(share ** own.numel() < CHANCE)


def _around(most: int, dtype: torch.dtype) -> Tensor:
    return torch.tensor([d for d in range(-most, most + 1) if d], dtype=dtype)


def _on_their_grid(bits: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """Bits of numbers beside those with these bits: that have as many digits as each, as those
    rounded to a shorter dtype do, and at multiples of the smallest digit of all."""
    last_digit, around = bits & -bits, _around(ALIKE, bits.dtype)
    yield bits[:, None] + last_digit[:, None] * around
    values = bits.view(dtype).double()
    digits = ((bits + last_digit).view(dtype).double() - values).abs()
    yield _bits((values[:, None] + digits.min() * around).to(dtype))


def _there(near: Tensor, own: Tensor, others: Numbers) -> tuple[int, int]:
    """Of bits how many are others', and how many were asked for: none of one's own."""
    near = near.flatten()
    near = near[~torch.isin(near, own)]
    return int(others.have_bits(near).sum()), near.numel()


def _bits(numbers: Tensor) -> Tensor:
    return numbers.contiguous().view(OF_BITS[numbers.element_size()])


def _seen(bits: Tensor, among: Tensor) -> Tensor:
    """bool: which are among others, which are more."""
    ordered, places = bits.unique(return_inverse=True)
    at = torch.searchsorted(ordered, among).clamp_(max=len(ordered) - 1)
    found = torch.zeros(ordered.shape, dtype=torch.bool)
    found[at[ordered[at] == among]] = True
    return found[places]
