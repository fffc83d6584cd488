"""Variances of operations that have no rule and no parts: what float32 makes of them is measured.

Solutions of equations, transforms, distances: their errors depend on what they are given (the
condition of a matrix), and on the numbers around each, which no formula of one number says.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tpcheck.bounds.arithmetic import (
    UNIT_ROUNDOFF,
    Arithmetic,
    Found,
    Operation,
    is_number,
    results,
)

#: What an operation is run again in.
_OTHER = {
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def measured(how: Arithmetic, op: Operation, again: Any) -> list[Found] | None:
    """Each result's, from how far runs in float32 and in float64 are apart: at each number, and on
    average, since a number that happens to be right is not an exact one.

    Args:
        again: the operator.

    Returns:
        None where it does not run in the other dtype, or can't be run again (it writes over what
        it is given, or draws random numbers).
    """
    if again._schema.is_mutable or torch.Tag.nondeterministic_seeded in again.tags:
        return None
    try:
        found = again(*tree_map(_other, op.args), **tree_map(_other, dict(op.kwargs)))
    except (RuntimeError, TypeError):
        return None
    pairs = zip(results(op.out), results(found), strict=True)
    return [_of(how, out, other) for out, other in pairs]


def _other(given: Any) -> Any:
    if isinstance(given, Tensor) and given.dtype in _OTHER:
        return given.to(_OTHER[given.dtype])
    return given


def _of(how: Arithmetic, out: Any, other: Any) -> Tensor | None:
    if not is_number(out):
        return None
    wide = torch.complex128 if out.is_complex() else torch.float64
    off = (other.to(wide) - out.to(wide)).abs().nan_to_num(0.0, 0.0, 0.0)
    v = how.v(out) / UNIT_ROUNDOFF[torch.float32]
    spread = (off**2 + (off**2).mean()) if off.numel() else off
    return how.rounded(out) + v**2 * spread
