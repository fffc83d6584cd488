"""The third statistic: a common scale error, actual ≈ (1 + ε) · expected.

One rank's partial sum that is 1 % off makes every element a little wrong, in the direction of the
tensor itself. Rounding errors point anywhere: projected on the tensor they average out over its n
elements, so that a common ε shows at about 1/√n of what a single element must be off.

    z = Σ (v/σ)·(e/σ)      v expected, e the error, σ of each element

The spread of z under rounding is measured on the noisy runs themselves, whose errors are as
correlated as the reference makes them; nothing is assumed independent. Letters: m = runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tpcheck.bounds.limits import JUMP
from tpcheck.bounds.spread import WIDE_JUMP

#: How much of the reference's own error along the tensor is a floor of its σ: functions such as exp
#: and erf err in one direction, in the candidate's kernels as in torch's. Smaller, and such a bias
#: raises false alarms; larger, and scale errors of that size hide.
BIAS = 0.5


def project(value: Tensor, sigma: Tensor, error: Tensor) -> float:
    """z of one error; elements that are exact (σ = 0) or can't be judged (σ = ∞) count for
    nothing."""
    return float((_direction(value, sigma) * error).nan_to_num_(0.0, 0.0, 0.0).sum())


def relative(value: Tensor, sigma: Tensor, z: float) -> float:
    """z as the scale error ε of the tensor."""
    size = float((_direction(value, sigma) * value).nan_to_num_(0.0, 0.0, 0.0).sum())
    return z / size if size > 0 else math.inf


def _direction(value: Tensor, sigma: Tensor) -> Tensor:
    """v/σ², 0 where there is no such thing."""
    return (value / sigma / sigma).nan_to_num_(0.0, 0.0, 0.0)


def scales(
    value: Tensor,
    sigma: Tensor,
    deviations: Tensor,
    own: Tensor,
    strained: tuple[Tensor, Tensor] | None,
    *,
    repeats: int,
    wide: bool = False,
) -> list[tuple[float, int]]:
    """σ of z under rounding, and from how many samples, of some tensors of one shape.

    Args:
        value, sigma: [tensors, ...].
        deviations: of the m noisy runs, [m, tensors, ...].
        own: the reference's own error in the case's dtype: a sample like the others, unless it is
            zero (in float64); and `BIAS` of it is a floor. [tensors, ...]
        strained: antithetic pairs, [pairs, tensors, ...] each; what a pair has in common is a jump
            and counts whole, as it does for an element.
        repeats: how often the same numbers occur in the inputs. Equal numbers have equal rounding
            errors, which add up instead of averaging out, and the noise does not know that.
        wide: whether pairs have errors `WIDE_STRAIN` times as large, as in float64: then what is
            beyond `WIDE_JUMP` by itself is a jump, too.
    """
    direction = _direction(value, sigma)

    def sizes(errors: Tensor) -> list[list[float]]:
        """|z| by tensor and run."""
        along = (errors * direction).nan_to_num_(0.0, 0.0, 0.0)
        found: list[list[float]] = along.reshape(*along.shape[:2], -1).sum(2).abs().T.tolist()
        return found

    own_sizes = [one for (one,) in sizes(own.unsqueeze(0))]
    common = sizes(strained[0] + strained[1]) if strained else [None] * len(own_sizes)
    alone = sizes(torch.cat(strained)) if strained and wide else [[] for _ in own_sizes]
    every = zip(sizes(deviations), common, alone, own_sizes, strict=True)
    return [_scale(*each, repeats=repeats) for each in every]


def _scale(
    runs: list[float], common: list[float] | None, alone: list[float], floor: float, *, repeats: int
) -> tuple[float, int]:
    """Of one tensor, from the sizes of z: of the runs, of what pairs have in common and what each
    of them is by itself, of its own error."""
    samples = [*runs, floor] if floor else runs
    measured = math.sqrt(repeats * math.fsum(x * x for x in samples) / len(samples))
    far = [z for z in alone if z > WIDE_JUMP * measured]
    jump = max(*runs, *common, *far) - JUMP * measured if common else 0.0
    return max(measured, jump, BIAS * floor), len(samples)


def repeats_of(inputs: Mapping[str, Tensor], *, expanded: bool, equal: bool = False) -> int:
    """How often the most frequent number, or row, of the inputs occurs by construction.

    Args:
        expanded: whether all of a batch are one.
        equal: whether all numbers of a row are one.
    """
    most = 1
    for tensor in inputs.values():
        if tensor.is_floating_point():
            if tensor.ndim >= 2 and tensor.numel():
                again = tensor.shape[0] if expanded else 1
                most = max(most, again * tensor.shape[-1] if equal else again)
        elif tensor.numel():
            most = max(most, int(tensor.reshape(-1).unique(return_counts=True)[1].max()))
    return most
