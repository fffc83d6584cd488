"""A function under rounding noise, as the oracle runs its reference."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.spread import Spread, spread
from tpcheck.oracle.effort import CONFIRM
from tpcheck.tensors.draw import TORCH_DTYPES

F64 = torch.float64
NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def noisy(
    function: Callable[..., Tensor], *given: Tensor, dtype: torch.dtype, degree: int, seed: int = 0
) -> list[Tensor]:
    """Deviations of `function` from itself under rounding noise, as the oracle takes them."""
    exact = function(*given)
    found = []
    for k in range(CONFIRM.runs[NAMES[dtype]]):
        errors = torch.Generator().manual_seed(100 * seed + k)
        with RoundingNoise(Arithmetic(dtype, degree), errors) as noise:
            value = function(*given)
        found.append((value.double() - exact.double()) / noise.enlarged)
    return found


def alone(deviations: list[Tensor]) -> Spread:
    """The spread of noisy runs whose reference has no error of its own."""
    return spread(deviations, torch.zeros_like(deviations[0]), dtype=torch.bfloat16)
