"""σ of every element of a tensor, from a few runs of the reference under `noise.RoundingNoise`.

What never rounds has σ = 0, and there any difference is wrong. How many σ a result may be off is
said by `limits`. See docs/bounds.md for the derivation and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tpcheck.bounds import limits
from tpcheck.bounds.arithmetic import OVERFLOW
from tpcheck.bounds.limits import FALSE_ALARM, JUMP
from tpcheck.tensors.blocks import in_rows

#: By how much σ is enlarged. In float64 the expected value is as wrong as the candidate's (twice
#: the variance), and sharpness is not what these cases are for: faults of logic are 1e-12 and
#: more, rounding 1e-16. 16 keeps rare correlations of a few roundings silent. At 1, two correct
#: cases in about 1,000 were called wrong, at 1.1 and 1.2 times the bound; four orders of magnitude
#: larger, and faults of logic begin to hide.
MARGIN = {torch.float64: 16.0}

#: By how much the errors of a strained pair of runs are enlarged, to probe how far the reference
#: stays linear in them. Smaller, and the few pairs do not meet a jump that a candidate's rounding
#: makes (a false alarm); larger, and the second order of smooth functions looks like a jump, which
#: widens the bounds.
STRAIN = 8.0

#: The same in float64, of errors as large as float64's own: those of single runs are larger by far
#: (`noise.ENLARGED`), and what they lead to is divided by that, a jump too. As much more as σ is
#: enlarged there: what a bound lets pass must not be beyond a jump that was not met. If it were
#: larger, numbers would be near a jump that no rounding reaches.
WIDE_STRAIN = STRAIN * MARGIN[torch.float64]

#: How many σ what those errors lead to is, at most, where it grows as they do: beyond it lies a
#: jump, as beyond `JUMP` σ of what single runs show.
WIDE_JUMP = WIDE_STRAIN * JUMP

#: With fewer rows or columns than this the rank-one estimate of `pooled` rests on a handful of
#: numbers, and the mean of the whole tensor stands in for it. Smaller would underestimate σ in
#: narrow tensors (false alarms); larger would blur rows of different magnitude (hidden faults).
FEW = 4

#: A squared deviation beyond it comes from `OVERFLOW`, whatever it went through since, and is not a
#: size of rounding. Smaller would leave large but honest numbers unjudged; larger would judge what
#: may overflow.
UNSURE = OVERFLOW / 1e100

#: If the reference's own error has more than this many times the noise's variance, the noise does
#: not explain it. Smaller, and ordinary scatter widens the limits to those of 2 samples; larger,
#: and a gradient that is zero by construction raises false alarms.
UNEXPLAINED = 4

#: How many independent samples are behind σ then: one run, whose elements may all come from one
#: rounding, and the noise. More would bound such a tensor too tightly.
UNEXPLAINED_SAMPLES = 2

#: The smallest number that divides without loss: in place of a mean that is zero.
LEAST = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Spread:
    """How far rounding may move a tensor: σ, from how many samples, and how rare an alarm shall be.

    Args:
        sigma: of every element, float64; ∞ where it can't be judged.
        samples: behind one element's σ.
        norm_samples: behind the whole tensor's √Σσ².
        chance: of an alarm over a correct tensor.
        gain: σ of the projection of the error on the tensor (`projection`), by which a common
            scale error is judged; 0 where none is.
        runs: how many samples are behind `gain`.
        elements: of the full tensor, to which `gain` belongs.
        independent: how many independent errors the tensor's come from, where that is known.
        least: whether σ is the least that it can be; limits then are, too.
        largest: the largest number of the dtype that was computed in, beyond which rounding may
            take a number to ∞.
    """

    sigma: Tensor
    samples: int
    norm_samples: int
    chance: float = FALSE_ALARM
    gain: float = 0.0
    runs: int = 1
    elements: int = 0
    independent: float = math.inf
    least: bool = False
    largest: float = math.inf

    def elementwise_limit(self, elements: int) -> float:
        """How many σ the worst of `elements` values may be off."""
        return limits.elementwise_limit(elements, self.samples, self.chance)

    def norm_limit(self, elements: int) -> float:
        """How many root mean square σ `elements` values may be off together."""
        return limits.norm_limit(elements, self.norm_samples, self.chance, self.independent)

    def gain_limit(self) -> float:
        """How far the projection on the tensor may be off."""
        return limits.elementwise_limit(1, self.runs, self.chance) * self.gain


def spreads(
    deviations: Tensor,
    own: Tensor,
    *,
    dtype: torch.dtype,
    finite: Tensor | None = None,
    strained: tuple[Tensor, Tensor] | None = None,
    chance: float = FALSE_ALARM,
) -> list[Spread]:
    """σ of each element of some tensors of one shape, which are looked at together: of small ones
    the calls are most of what it takes.

    Rounding can cause a jump that no multiple of a small σ describes: the sign of a norm over two
    numbers that nearly agree, the choice of an expert. One shows as a run far outside the others,
    or as what a strained pair has in common. It counts as a σ of its own, so that the limit, six
    and more, covers the jump whole.

    Args:
        deviations: from the exact values, in a few noisy runs: float64 [runs, tensors, ...].
        own: the reference's own error, in the case's dtype and with torch's own kernels: what it
            shows together (its rows and columns pooled) is a floor. It covers what the noise does
            not model, such as another order inside a fused kernel. [tensors, ...], float64.
        dtype: the case's.
        finite: whether an element is judged at all; how large the others are says nothing of it.
        strained: antithetic pairs of deviations, under the same errors at +`STRAIN` and −`STRAIN`
            times their size, [pairs, tensors, ...] each. To first order the two cancel. In float64
            at ±`WIDE_STRAIN` times float64's own; the sign of what is zero in the exact run turns
            both ways, so that there one that is too large by itself is a jump, too.
        chance: of an alarm over a correct tensor.
    """
    runs, squares = len(deviations), deviations.square().mean(0)
    unsure = _unsure(squares, strained) if finite is None else ~finite | _unsure(squares, strained)
    squares, errors = (torch.where(unsure, 0.0, each) for each in (squares, own.square()))
    if squares.numel() == 0:
        return [Spread(one, 1, 1, chance) for one in squares]
    # [tensors, rows, columns]
    grids = squares.reshape(len(squares), *in_rows(squares[0]).shape)
    errors, hidden = errors.reshape(grids.shape), unsure.reshape(grids.shape)
    floors = [pooled(_filled(each, hidden)) for each in (grids, errors)]
    variance = grids.maximum(floors[0]).maximum(floors[1])
    sigma = variance.reshape(squares.shape).sqrt()
    if strained:
        up, down = strained
        jumps = [deviations, up + down]
        if dtype == torch.float64:
            jumps += [torch.where(off.abs() > WIDE_JUMP * sigma, off, 0.0) for off in strained]
        sigma = _with_jumps(sigma, torch.cat(jumps))
    sigma = torch.where(unsure, torch.inf, sigma)
    independent = _independent(torch.where(unsure, 0.0, deviations).reshape(runs, len(squares), -1))
    samples = _samples(grids, errors, runs)
    sigma = sigma * MARGIN.get(dtype, 1.0)
    found = []
    for one, (each, of_norm), ways in zip(sigma, samples, independent, strict=True):
        of_norm = round(min(of_norm, max(1.0, runs * ways)))
        found.append(Spread(one, each, of_norm, chance, independent=ways))
    return found


def _unsure(squares: Tensor, strained: tuple[Tensor, Tensor] | None) -> Tensor:
    """Whether an element may overflow, or not."""
    found = ~(squares < UNSURE)
    for off in strained or ():
        found |= ~(off.square() < UNSURE).all(0)
    return found


def of_integers(
    deviations: Sequence[Tensor],
    own: Tensor,
    *,
    bools: bool,
    strained: Sequence[tuple[Tensor, Tensor]] = (),
    chance: float = FALSE_ALARM,
) -> Spread:
    """σ of integers and bools: 0, but where a run shows that rounding decides (the index of a
    maximum that two elements nearly share). Such an element is bounded by its own jumps, not by
    those of others; of a bool nothing is left to judge.

    Args:
        deviations, own: as of `spreads`, of one tensor.
        bools: whether it is one of bools.
        strained: as of `spreads`, pair by pair.
        chance: of an alarm over a correct tensor.
    """
    pairs = [deviation for pair in strained for deviation in pair]
    sigma = torch.stack([*deviations]).square().mean(0).sqrt()
    sigma = _with_jumps(sigma, torch.stack([*deviations, own, *pairs]))
    if bools:
        sigma = torch.where(sigma > 0, torch.inf, sigma)
    sigma.nan_to_num_(torch.inf, torch.inf)  # another run has none
    return Spread(sigma, len(deviations), len(deviations), chance)


def _samples(grids: Tensor, errors: Tensor, runs: int) -> list[tuple[int, int]]:
    """How many samples are behind one element's σ, and behind the whole tensor's, of each tensor.

    Args:
        grids: mean squares of `runs` deviations [tensors, rows, columns].
        errors: squares of the reference's own error.
    """
    fewest, count = min(grids.shape[1:]), grids[0].numel()
    unexplained = errors.sum((1, 2)) > UNEXPLAINED * grids.sum((1, 2))
    nonzero = (grids > 0).sum((1, 2)).tolist()
    return [
        (UNEXPLAINED_SAMPLES, UNEXPLAINED_SAMPLES)
        if of_few
        else (runs * (some if fewest < FEW else fewest), runs * count)
        for of_few, some in zip(unexplained.tolist(), nonzero, strict=True)
    ]


def _independent(deviations: Tensor) -> list[float]:
    """How many independent errors are behind the deviations of runs [runs, tensors, elements]: 1
    where one rounding upstream (of the mean of the only row) moves all elements.

    Of errors D = C·z with z independent, cos² of two runs is Σλ² / (Σλ)² on average, λ the
    eigenvalues of CCᵀ: one over the participation ratio, the number of directions that count.
    """
    each = deviations.transpose(0, 1)
    products = each @ each.transpose(1, 2)  # [tensors, runs, runs]
    squares = products.diagonal(dim1=1, dim2=2)
    # each divided by itself: a product of two squares may be zero
    alike = (products / squares.unsqueeze(2)) * (products / squares.unsqueeze(1))
    some = squares > 0
    both = (some.unsqueeze(2) & some.unsqueeze(1)).triu(1)
    counts, sums = both.sum((1, 2)).tolist(), torch.where(both, alike, 0.0).sum((1, 2)).tolist()
    return [n / of if of else math.inf for n, of in zip(counts, sums, strict=True)]


def _with_jumps(sigma: Tensor, deviations: Tensor) -> Tensor:
    """σ, enlarged to what lies beyond `JUMP` of it in one of the deviations [runs, ...]."""
    worst = deviations.abs().nan_to_num_(torch.inf).amax(0)
    return torch.maximum(sigma, worst - JUMP * sigma)


@dataclass(frozen=True)
class Pooled:
    """What rows and columns of squared errors [rows, columns] say together of each element.

    A few samples say little about one element. The rank-one estimate (row mean × column mean /
    mean) follows tensors whose rows or columns differ by orders of magnitude; with too few rows
    or columns for that, the mean of the whole holds where there is any error at all.

    Args:
        rows, columns, mean: means of the squares: [..., rows, 1], [..., 1, columns], [..., 1, 1].
        few: whether there are too few rows or columns.
    """

    rows: Tensor
    columns: Tensor
    mean: Tensor
    few: bool

    def times(self, factor: float) -> Pooled:
        """Of squares that are so many times as large."""
        return Pooled(self.rows * factor, self.columns * factor, self.mean * factor, self.few)

    def of(self, rows: Tensor, errors: Tensor) -> Tensor:
        """What is said of some rows.

        Args:
            rows: their part of `rows`; errors: theirs, or the squares.
        """
        # where the mean is zero, so are the others
        each = rows * (self.columns / self.mean.clamp_min(LEAST))
        return torch.where(errors != 0, each.maximum(self.mean), each) if self.few else each


def _filled(grids: Tensor, hidden: Tensor) -> Tensor:
    """Squared errors [..., rows, columns], with the mean of all in the place of what is hidden, and
    zero."""
    if not hidden.any():
        return grids
    seen = (~hidden).sum((-2, -1), keepdim=True).clamp_min(1)
    return torch.where(hidden, grids.sum((-2, -1), keepdim=True) / seen, grids)


def pooled(grids: Tensor) -> Tensor:
    """`Pooled` of squared errors [..., rows, columns], which are there as a whole."""
    rows, columns = grids.mean(-1, keepdim=True), grids.mean(-2, keepdim=True)
    mean = grids.mean((-2, -1), keepdim=True)
    return Pooled(rows, columns, mean, min(grids.shape[-2:]) < FEW).of(rows, grids)
