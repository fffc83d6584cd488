"""How far off a run's results are from those of another."""

from __future__ import annotations

import torch
from torch import Tensor

from tpcheck.protocol.problem import Values


def kept(off: Values, lost: Values, right: Values) -> Values:
    """Deviations, and NaN where what overflows can lead to it, or to another integer.

    Args:
        lost: those of a run in which it is ∞ or NaN itself.
        right: what both deviate from.
    """

    def sure(key: tuple[str, str]) -> Tensor:
        of, own = lost[key], off[key]
        return of.isfinite() if right[key].is_floating_point() else of == own

    return {key: torch.where(sure(key), own, torch.nan) for key, own in off.items()}


def difference(off: Values, right: Values, times: float) -> Values:
    """By how much each tensor of `right` is off in another run, whose errors are so many times as
    large."""
    own = beside(off, right)
    return {key: (own[key].double() - value.double()) / times for key, value in right.items()}


def beside(run: Values, right: Values) -> Values:
    """The tensors of `right` as another run gave them; NaN where rounding sent the run another way
    (a token to another expert, say), so that it has no such tensor, or one of another shape."""

    def of(own: Tensor | None, value: Tensor) -> Tensor:
        if own is not None and own.shape == value.shape:
            return own
        dtype = own.dtype if own is not None and own.is_floating_point() else torch.float64
        return torch.full(value.shape, torch.nan, dtype=dtype)

    return {key: of(run.get(key), value) for key, value in right.items()}
