"""The rules that others decide by, held against the same run as ours: `tpcheck mutants --against`.

None of them decides anything here. Each is given what it needs to be at its best: the same
random shapes, parameters and cotangents, every gradient, and its slice of the right reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tpcheck.vocabulary import Rule

FROBENIUS = 0.083
ON_TENSORS = (Rule.ASSERT_CLOSE, Rule.TWICE_OWN_ERROR, Rule.FROBENIUS)


def alarms(actual: Tensor | None, expected: Tensor, own: Tensor, *, twice_own: float) -> set[Rule]:
    """Which rules on tensors call one rank's local tensor wrong.

    Args:
        actual: the candidate's, or None where it has none, which every rule sees.
        expected: its slice of the float64 reference.
        own: its slice of the reference's result in the case's dtype.
        twice_own: `twice_own_error` of the full tensors.
    """
    if actual is None or actual.shape != expected.shape:
        return set(ON_TENSORS)
    found: set[Rule] = set()
    try:
        torch.testing.assert_close(actual.detach(), own)
    except AssertionError:
        found.add(Rule.ASSERT_CLOSE)
    if expected.numel() == 0:
        return found
    error = (actual.detach().double() - expected).abs()
    if not float(error.max()) <= twice_own:
        found.add(Rule.TWICE_OWN_ERROR)
    if not float(error.norm()) <= FROBENIUS * float(expected.norm()):
        found.add(Rule.FROBENIUS)
    return found


def twice_own_error(own: Tensor, value: Tensor) -> float:
    """2 · max|own − value| + 2 · max|own + 0.3 − 0.3 − own| of the full tensor: the second term,
    in the dtype, is what keeps the rule usable where the reference happens to be exact.

    Args:
        own: the reference's result in the case's dtype.
        value: its result in float64, exact.
    """
    if not own.numel():
        return 0.0
    rounding = float((own + 0.3 - 0.3 - own).abs().max())
    return 2 * float((own.double() - value).abs().max()) + 2 * rounding
