"""A function under rounding noise, as the oracle runs its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tpcheck.bounds import projection
from tpcheck.bounds.arithmetic import Arithmetic
from tpcheck.bounds.noise import RoundingNoise
from tpcheck.bounds.spread import Spread, spreads
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


Pairs = Sequence[tuple[Tensor, Tensor]]


def spread(
    deviations: Sequence[Tensor],
    own: Tensor,
    *,
    dtype: torch.dtype,
    strained: Pairs = (),
    **more: float,
) -> Spread:
    """Of one tensor; arguments as of `spreads`, a tensor each."""
    runs = _of_one(deviations)
    errors = own.double().unsqueeze(0)
    (found,) = spreads(runs, errors, dtype=dtype, strained=_apart(strained), **more)
    return found


def scale(
    value: Tensor,
    sigma: Tensor,
    deviations: Sequence[Tensor],
    own: Tensor,
    strained: Pairs,
    *,
    repeats: int,
) -> tuple[float, int]:
    """Of one tensor; arguments as of `projection.scales`, a tensor each."""
    runs, (v, s, o) = _of_one(deviations), (t.unsqueeze(0) for t in (value, sigma, own))
    (found,) = projection.scales(v, s, runs, o, _apart(strained), repeats=repeats)
    return found


def _of_one(runs: Sequence[Tensor]) -> Tensor:
    return torch.stack([*runs]).double().unsqueeze(1)


def _apart(pairs: Pairs) -> tuple[Tensor, Tensor] | None:
    if not pairs:
        return None
    ups, downs = zip(*pairs, strict=True)
    return _of_one(ups), _of_one(downs)


def alone(deviations: list[Tensor]) -> Spread:
    """The spread of noisy runs whose reference has no error of its own."""
    return spread(deviations, torch.zeros_like(deviations[0]), dtype=torch.bfloat16)
