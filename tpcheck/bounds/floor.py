"""The least that σ can be: what one run in the case's dtype, its products split as over ranks, is
off, its rows and columns pooled, and what storing each number that is off rounds: an error uniform
in ±u|y|.

Every later σ is at least as large but for what one sample strays: it has the same errors in more
runs. Limits are those of a σ that is known, which are the smallest, so what is within them would be
under any noisy runs. What is not says nothing: few numbers are often outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.bounds.spread import FEW, MARGIN, Pooled, Spread
from tpcheck.tensors.blocks import blocks, farthest, in_rows, largest

Values = Mapping[tuple[str, str], Tensor]

#: As many samples as make σ known.
KNOWN = 1 << 40

#: By how much σ is enlarged in float64: half as much as that of many runs.
ENLARGED = MARGIN[torch.float64] / 2
#: Of a run in float32, what one in float64 would be off, enlarged.
OF_FLOAT64 = UNIT_ROUNDOFF[torch.float64] / UNIT_ROUNDOFF[torch.float32] * ENLARGED
#: By how much the variance of a projection may be larger than one run shows, row by row. Less, and
#: tensors of few rows are suspected by chance; more hides scale errors beside rows that move whole.
ALONG = 2.0
#: How far a run in float32 may be from one in float64, of a tensor's largest number: one that has
#: taken another way there (another expert, another sign) says nothing of rounding in float64.
APART = 2.0**-12
#: A tensor of which no number is larger has lost digits in float32: below the normal range.
FAINT = 2.0**-100


def is_ordinary(values: Values, low: Values, dtype: torch.dtype) -> bool:
    """Whether the same tensors are there in a run in another dtype, all numbers are finite, all
    integers the same, no tensor is so small that it has lost digits for it, and one in float32 is
    near.

    Args:
        dtype: the case's.
    """
    apart = APART if dtype == torch.float64 else math.inf
    return all(key in low and _is_ordinary(value, low[key], apart) for key, value in values.items())


def _is_ordinary(value: Tensor, low: Tensor, apart: float) -> bool:
    if low.shape != value.shape:
        return False
    if not (value.is_floating_point() and low.is_floating_point()):
        return torch.equal(value.double(), low.double())  # else rounding decides
    if not value.numel():
        return True
    size = largest(value)
    if apart == math.inf:
        other = largest(low)
        return math.isfinite(size + other) and (size > FAINT or size == other == 0.0)
    near = farthest(low, value) <= apart * size  # so that both are finite where one is
    return math.isfinite(size) and near and (size > FAINT or size == 0.0)


@dataclass(frozen=True)
class Runs:
    """One tensor, as runs in the case's dtype, or in float32 for float64, have it; finite.

    Args:
        low: products are split over the ranks, where it accumulates in more than it stores.
        own: they are not.
        right: what both would be if nothing rounded, float64.
        degree: over how many ranks they are split.
    """

    low: Tensor
    own: Tensor
    right: Tensor
    degree: int

    @property
    def split(self) -> float:
        """By how much the variance of `low` may be larger than that of `own`: a product of R parts
        that are alike is rounded once there, and here its parts are, and each sum of 2 to R of
        them, of k/R of its square (`bounds/sums`). More comes from what only that run met, as an
        element whose sign turned, and would hide faults beside it; less, and what is large is
        rarely within."""
        return 1.0 + sum(range(2, self.degree + 1)) / self.degree


def least(value: Tensor, runs: Runs, dtype: torch.dtype, *, chance: float, reduced: bool) -> Spread:
    """How far rounding may move a tensor at least.

    Args:
        value: as expected, float64, finite.
        dtype: the case's.
        chance: of an alarm over a correct tensor, were σ known.
        reduced: whether it may be a sum over ranks, so that a common scale error is looked for.
    """
    if not value.numel() or not runs.low.is_floating_point():
        return Spread(torch.zeros_like(value), KNOWN, KNOWN, chance)
    off = in_rows(runs.low - runs.right)  # [rows, columns], float64, and so are those below
    own = off if runs.own is runs.low else in_rows(runs.own - runs.right)
    wide, grid = dtype == torch.float64, in_rows(value)
    as_case = OF_FLOAT64 if wide else 1.0
    # of what storing each number rounds, in the dtype that the reference gives it
    u = UNIT_ROUNDOFF[dtype] * ENLARGED if wide else UNIT_ROUNDOFF.get(runs.low.dtype, 0.0)
    sigma = _sigma(grid, off, own, runs.split, as_case, u / math.sqrt(3))
    found = Spread(sigma.reshape(value.shape), KNOWN, KNOWN, chance, least=True)
    if not reduced:
        return found
    gain = _gain(grid, sigma, own, as_case, by_row=value.ndim >= 2)
    return replace(found, gain=gain, runs=KNOWN, elements=value.numel())


def _sigma(
    value: Tensor, off: Tensor, own: Tensor, most: float, as_case: float, stored: float
) -> Tensor:
    """σ of each element.

    Args:
        off, own: errors of the run whose products are split, and of the other.
        most: by how much the variance of the former may be larger.
        as_case: what they are in the case's dtype, of what they are in the run's.
        stored: σ of what storing a number rounds, of the number.
    """
    split = _pooled(off).times(as_case**2)
    plain = split if own is off else _pooled(own).times(most * as_case**2)
    sigma = torch.empty_like(off)
    every = blocks(sigma, value, off, own, split.rows, plain.rows)
    for found, number, error, other, of_split, of_plain in every:
        each = split.of(of_split, error)
        if own is not off:
            torch.minimum(each, plain.of(of_plain, other), out=each)
        each.sqrt_()
        # what is only moved does not round; by signs, since choosing takes ten times as long
        held = error.sign().mul_(each.sign()).mul_(number).abs_().mul_(stored)
        torch.maximum(each, held, out=found)
    return sigma


def _pooled(off: Tensor) -> Pooled:
    """Of squared errors, given the errors."""
    columns = torch.zeros_like(off[:1])
    rows = []
    for (some,) in blocks(off):
        squares = some.square()
        rows.append(squares.sum(1, keepdim=True))
        columns += squares.sum(0, keepdim=True)
    by_row = torch.cat(rows) if len(rows) > 1 else rows[0]
    count, width = off.shape
    mean = by_row.sum() / off.numel()
    return Pooled(by_row / width, columns / count, mean, min(count, width) < FEW)


def _gain(value: Tensor, sigma: Tensor, off: Tensor, as_case: float, *, by_row: bool) -> float:
    """σ of the projection on the tensor (`bounds/projection`) of errors that are independent, and
    no more than `ALONG` times what one run's are: where one rounding moves a whole row, as that of
    its mean does, it may do so at right angles to the row.

    Args:
        off: the run's errors; `as_case` as of `_sigma`.
        by_row: whether a row is one; else each of its elements is.
    """
    independent = along = 0.0
    for number, own, error in blocks(value, sigma, off):
        inverse = own.reciprocal().nan_to_num_(0.0, 0.0, 0.0)
        ratio = number * inverse
        each = inverse.mul_(error).mul_(ratio)
        along += float((each.sum(1) if by_row else each).square_().sum())
        independent += float(ratio.square_().sum())
    return math.sqrt(min(independent, ALONG * as_case**2 * along))
