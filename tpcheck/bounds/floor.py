"""The least that σ can be: what one run in the case's dtype, its products split as over ranks, is
off, its rows and columns pooled, and what storing each number rounds: an error uniform in ±u|y|.

Every later σ is at least as large but for what one sample strays: it has the same errors in more
runs. Limits are those of a σ that is known, which are the smallest, so what is within them would be
under any noisy runs. What is not says nothing: few numbers are often outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.bounds.spread import MARGIN, Spread, in_rows, pooled

Values = Mapping[tuple[str, str], Tensor]

#: As many samples as make σ known.
KNOWN = 1 << 40

#: Of a run in float32, what one in float64 would be off, and the half of what σ is enlarged by
#: there: a run in float32 rounds what it is given, too, which one in float64 does not.
OF_FLOAT32 = UNIT_ROUNDOFF[torch.float64] / UNIT_ROUNDOFF[torch.float32]
OF_FLOAT64 = OF_FLOAT32 * MARGIN[torch.float64] / 2
#: How far a run in float32 may be from one in float64, of a tensor's largest number: one that has
#: taken another way there (another expert, another sign) says nothing of rounding in float64.
APART = 2.0**-12
#: A tensor of which no number is larger has lost digits in float32: below the normal range.
FAINT = 2.0**-100


def is_ordinary(values: Values, own: Values, dtype: torch.dtype) -> bool:
    """Whether the same tensors are there in a run in another dtype, all numbers are finite, no
    tensor is so small that it has lost digits for it, and one in float32 is near.

    Args:
        dtype: the case's.
    """
    apart = APART if dtype == torch.float64 else math.inf
    return all(key in own and _is_ordinary(value, own[key], apart) for key, value in values.items())


def _is_ordinary(value: Tensor, own: Tensor, apart: float) -> bool:
    if own.shape != value.shape:
        return False
    if not value.numel() or not value.is_floating_point():
        return True
    largest, other = float(value.abs().amax()), float(own.abs().amax())
    if not math.isfinite(largest + other):
        return False
    if largest == other == 0.0:
        return True
    near = apart == math.inf or float((own - value).abs().amax()) <= apart * largest
    return largest > FAINT and near


def least(
    value: Tensor, own: Tensor, dtype: torch.dtype, *, chance: float, reduced: bool
) -> Spread:
    """How far rounding may move a tensor at least.

    Args:
        value: as expected, finite.
        own: the same in the case's dtype, or in float32 for float64; finite.
        dtype: the case's.
        chance: of an alarm over a correct tensor, were σ known.
        reduced: whether it may be a sum over ranks, so that a common scale error is looked for.
    """
    off = own.double() - value
    if not own.is_floating_point():  # what rounding decides, and no other
        none = torch.inf if own.dtype == torch.bool else 1.0
        return Spread(torch.where(off != 0, off.abs() * none, 0.0), KNOWN, KNOWN, chance)
    off *= OF_FLOAT64 if dtype == torch.float64 else 1.0
    sigma = pooled(in_rows(off.square_())).reshape(off.shape).sqrt_()
    if bool(sigma.any()):  # else nothing rounds
        stored = UNIT_ROUNDOFF[dtype] * MARGIN.get(dtype, 2.0) / 2 / math.sqrt(3)
        sigma = torch.maximum(sigma, value.abs() * stored)
    found = Spread(sigma, KNOWN, KNOWN, chance, least=True)
    if not reduced or not value.numel():
        return found
    # of errors that are independent: those of runs have more in common
    gain = float((value / sigma).nan_to_num_(0.0, 0.0, 0.0).square_().sum().sqrt())
    return replace(found, gain=gain, runs=KNOWN, elements=value.numel())
