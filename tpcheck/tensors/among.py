"""Whether numbers are among others, in any order, and not by chance."""

from __future__ import annotations

import torch
from torch import Tensor

#: Numbers on either side of each that are looked up, too: half an octave of bfloat16.
BESIDE = 64

#: Of how many numbers, about, those beside them are looked up.
SOME = 1024

#: So many different numbers, and that three of four are, tell more than a grid of few values does,
#: which any two tensors have in common.
MANY = 64

#: How probable it may be that as many are there by chance.
CHANCE = 1e-4

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def are_among(numbers: Tensor, others: Tensor) -> bool:
    """Whether each of these numbers is among the others, where chance does not explain it: the
    share of the nearest ones of their dtype that is there, too, says how often it would. Whole
    numbers tell nothing: zeros and ones are everywhere.

    Args:
        numbers: of a floating dtype, any shape.
        others: of the same dtype, any shape.
    """
    own, there = (_bits(each.flatten()) for each in (numbers[numbers != numbers.round()], others))
    count, own = own.numel(), own.unique()
    if own.numel() < min(count, MANY) * 3 / 4:
        return False
    if not own.numel() or not bool(torch.isin(own, there).all()):
        return False
    some = own[:: max(1, own.numel() // SOME)]
    beside = torch.tensor([d for d in range(-BESIDE, BESIDE + 1) if d], dtype=own.dtype)
    near = (some[:, None] + beside).flatten()
    near = near[~torch.isin(near, own)]
    share = (int(torch.isin(near, there).sum()) + 1) / (near.numel() + 1)
    return bool(share ** own.numel() < CHANCE)


def _bits(numbers: Tensor) -> Tensor:
    return numbers.contiguous().view(_BITS[numbers.element_size()])
