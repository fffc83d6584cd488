"""How far a correct candidate may be from the float64 reference: bounds derived from the case.

The spread of a few runs of the reference under `noise.RoundingNoise` is a bound's scale σ, element
by element; what never rounds has σ = 0. The limits say how many σ the worst element, and how many
the whole tensor, may be off.

See docs/bounds.md for the derivation and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tpcheck.bounds.noise import OVERFLOW

# The chance, by the model, that one tensor of a correct case is suspected at the first look, and
# that it is called wrong at the second, which has many more samples.
SUSPICION = 1e-4
FALSE_ALARM = 1e-9
# In float64 the expected value is as wrong as the candidate's (twice the variance), and sharpness
# is not what these cases are for: faults of logic are 1e-12 and more, rounding 1e-16. So σ is
# taken this many times as large, which keeps rare correlations of a few roundings silent.
MARGIN = {torch.float64: 16.0}
# Errors this many times as large as rounding probe how far the reference stays linear in them.
STRAIN = 8.0
FEW = 4


def elementwise_limit(elements: int, samples: int, chance: float = FALSE_ALARM) -> float:
    """How many estimated σ the worst of `elements` values may be off.

    An error of variance σ² over a σ estimated from ν samples has Student's t distribution. Two
    bounds of its tail, each with n·P ≤ chance, and the smaller of them:

    * few samples: P(|T| > t) ≤ 2c·ν^((ν−1)/2)·t^(−ν), from 1 + t²/ν ≥ t²/ν in the density, c its
      constant Γ((ν+1)/2) / (√(νπ) Γ(ν/2));
    * many: half of the chance to a normal error, P(|N| > t) ≤ 2·exp(−t²/2), half to a σ that is
      too small (`inflation`).
    """
    n, nu = max(elements, 1), float(max(samples, 1))
    log_c = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
    tail = math.log(2 * n / chance) + log_c + (nu - 1) / 2 * math.log(nu)
    normal = math.sqrt(2 * math.log(4 * n / chance))
    return min(math.exp(min(tail / nu, 80.0)), normal * inflation(samples, chance / 2))


def norm_limit(elements: int, samples: int, chance: float = FALSE_ALARM) -> float:
    """How many times its root mean square σ a tensor of `elements` values may be off.

    For independent errors of variance σ² the mean square of n of them exceeds
    1 + 2√(t/n) + 2t/n with probability at most e^(−t) (Laurent & Massart 2000, lemma 1), here
    with e^(−t) = chance / 2 and n the effective number of independent errors: one rounding
    upstream (of a mean, of a score) moves a whole row, so n counts as its square root.
    """
    effective = max(1.0, math.sqrt(elements))
    t = -math.log(chance / 2)
    growth = math.sqrt(1 + 2 * math.sqrt(t / effective) + 2 * t / effective)
    return growth * inflation(samples, chance / 2)


def inflation(samples: int, chance: float) -> float:
    """By how much σ may be underestimated from `samples` squares, but for `chance`.

    The mean of ν squared normal numbers is χ²_ν/ν. Its lower quantile is bounded below by
    2(p·Γ(ν/2+1))^(2/ν)/ν, since P(χ²_ν < x) ≤ (x/2)^(ν/2)/Γ(ν/2+1), and for many samples it is
    close to Wilson and Hilferty's (1931) cube.
    """
    nu = float(max(1, samples))
    exact = 2 * math.exp((math.log(chance) + math.lgamma(nu / 2 + 1)) * 2 / nu) / nu
    cube = 1 - 2 / (9 * nu) - math.sqrt(-2 * math.log(chance)) * math.sqrt(2 / (9 * nu))
    return max(exact, cube**3 if cube > 0 else 0.0) ** -0.5


@dataclass(frozen=True)
class Spread:
    """σ of every element (float64), from how many samples, and how rare an alarm shall be."""

    sigma: Tensor
    samples: int  # behind one element's σ
    norm_samples: int  # behind the whole tensor's √Σσ²
    chance: float = FALSE_ALARM
    gain: float = 0.0  # σ of the projection on the tensor (`gain`); 0 where that is not judged
    runs: int = 1  # behind `gain`
    elements: int = 0  # of the full tensor, to which `gain` belongs

    def elementwise_limit(self, elements: int) -> float:
        """How many σ the worst of `elements` values may be off."""
        return elementwise_limit(elements, self.samples, self.chance)

    def norm_limit(self, elements: int) -> float:
        """How many root mean square σ `elements` independent values may be off together."""
        return norm_limit(elements, self.norm_samples, self.chance)

    def gain_limit(self) -> float:
        """How far the projection on the tensor may be off."""
        return elementwise_limit(1, self.runs, self.chance) * self.gain


def spread(
    deviations: list[Tensor],
    own: Tensor,
    *,
    dtype: torch.dtype,
    strained: Sequence[tuple[Tensor, Tensor]] = (),
    chance: float = FALSE_ALARM,
) -> Spread:
    """σ of each element.

    Rounding can cause a jump that no multiple of a small σ describes: the sign of a norm over two
    numbers that nearly agree, the choice of an expert. One shows as a run far outside the others,
    or as what a strained pair has in common. It counts as a σ of its own, so that the limit, six
    and more, covers the jump whole.

    Args:
        deviations: from the exact values, in a few noisy runs.
        own: the reference's own error, in the case's dtype and with torch's own kernels: what it
            shows together (its rows and columns pooled) is a floor. It covers what the noise does
            not model, such as another order inside a fused kernel.
        dtype: the case's.
        strained: pairs of deviations, under errors `STRAIN` times as large and under their mirror
            image. To first order the two cancel.
        chance: of an alarm over a correct tensor.
    """
    runs = len(deviations)
    squares = torch.stack([d.double() ** 2 for d in deviations]).mean(0)
    unsure = ~(squares < OVERFLOW / 1e100)  # it may overflow, or not
    squares = torch.where(unsure, 0.0, squares)
    if squares.numel() == 0:
        return Spread(squares, 1, 1, chance)
    shape = squares.shape
    grid = squares.reshape(-1, shape[-1]) if squares.ndim >= 2 else squares.reshape(1, -1)
    fewest = min(grid.shape)
    samples = runs * (int((grid > 0).sum()) if fewest < FEW else fewest)
    found = (own.double() ** 2).reshape(grid.shape)
    whole = runs * squares.numel()
    if float(found.sum()) > 4 * float(grid.sum()):
        # the noise does not explain it: all that is known is one run, whose elements may all come
        # from one rounding (a gradient that is zero by construction)
        samples = whole = 2
    variance = torch.maximum(torch.maximum(grid, _pooled(grid)), _pooled(found))
    sigma = variance.reshape(shape).sqrt()
    jumps = [d.abs() for d in deviations] + [(up + down).abs() for up, down in strained]
    if strained:
        worst = torch.stack(jumps).nan_to_num_(torch.inf).amax(0)
        sigma = torch.maximum(sigma, worst - 5 * sigma)
    sigma = torch.where(unsure, torch.inf, sigma)
    return Spread(sigma * MARGIN.get(dtype, 1.0), samples, whole, chance)


def _pooled(grid: Tensor) -> Tensor:
    """What rows and columns of squared errors [rows, columns] say together of each element.

    A few samples say little about one element. The rank-one estimate (row mean × column mean /
    mean) follows tensors whose rows or columns differ by orders of magnitude; with too few rows
    or columns for that, the mean of the whole holds where there is any error at all.
    """
    rows, columns, mean = grid.mean(1, keepdim=True), grid.mean(0, keepdim=True), grid.mean()
    if not mean > 0:
        return torch.zeros_like(grid)
    pooled = rows * columns / mean
    if min(grid.shape) < FEW:
        pooled = torch.where(grid > 0, torch.maximum(pooled, mean), pooled)
    return pooled
