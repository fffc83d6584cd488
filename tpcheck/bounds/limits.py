"""How many σ a correct result may be off: its worst element, and the whole tensor.

σ is an estimate from a few samples, so each limit has two parts: how far a normal error strays, and
by how much σ may have been underestimated (`inflation`). Each is exceeded by a correct tensor with
at most a given chance. See docs/bounds.md for the derivation and the measurements.
"""

from __future__ import annotations

import math

#: The chance, by the model, that a correct tensor is suspected after the few noisy runs of the
#: screening. A suspect is judged again under 24 to 48 runs and cleared by them: larger, and many
#: cases pay for that; smaller, and so few runs bound small tensors so loosely that faults hide.
SUSPICION = 1e-4

#: The chance that a correct tensor is called wrong by the confirmation, under many runs. It has to
#: be far below one in all tensors of a campaign, which are millions. Larger, and users see FAILs of
#: correct code; smaller widens the limits, slowly (as the root of a logarithm).
FALSE_ALARM = 1e-9

#: Beyond this many σ a deviation is no longer a sample of the same errors but a jump: rounding has
#: turned a sign, or chosen another expert. What lies beyond counts as a σ of its own, and every
#: limit is 6 and more, so that a jump of 6σ and more is covered whole. If it were larger, a jump
#: between would raise false alarms; if smaller, σ would grow with ordinary noise.
JUMP = 5.0

_LARGEST_EXPONENT = 80.0  # of Student's bound: e^80 σ is not a bound at all, and still finite


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
    few = math.exp(min(tail / nu, _LARGEST_EXPONENT))
    return min(few, normal * inflation(samples, chance / 2))


def norm_limit(
    elements: int, samples: int, chance: float = FALSE_ALARM, independent: float = math.inf
) -> float:
    """How many times its root mean square σ a tensor of `elements` values may be off.

    For independent errors of variance σ² the mean square of n of them exceeds
    1 + 2√(t/n) + 2t/n with probability at most e^(−t) (Laurent & Massart 2000, lemma 1), here
    with e^(−t) = chance / 2 and n the effective number of independent errors: one rounding
    upstream (of a mean, of a score) moves a whole row, so n counts as its square root, and as no
    more than the noisy runs show.

    Args:
        independent: what they show.
    """
    effective = max(1.0, min(math.sqrt(elements), independent))
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
