"""The rules that others decide by, held against the same run as ours: `tpcheck mutants --against`.

None of them decides anything here. Each is given what it needs to be at its best: the same
random shapes, parameters and cotangents, every gradient, and its slice of the right reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tpcheck.protocol.messages import RankReport
    from tpcheck.protocol.problem import Target
    from tpcheck.verdict import Mismatch

RULES = {
    "tpcheck": "all evidence",
    "assert_close": "torch.testing.assert_close, defaults for the dtype, against the reference in "
    "that dtype",
    "twice own error": "largest error at most 2 × the reference's own against float64, and the "
    "rounding of a sum (FlashAttention's rule)",
    "frobenius 8.3 %": "relative Frobenius error at most 8.3 %",
    "forward only": "our bounds, of outputs alone",
    ".sum() loss": "our bounds, under cotangents of ones",
}
FROBENIUS = 0.083
VALUES = frozenset(["output", "loss", "input_grad", "param_grad", "param"])
OUTPUTS = frozenset(["output", "loss"])
_ON_TENSORS = ("assert_close", "twice own error", "frobenius 8.3 %")


def alarms(actual: Tensor | None, expected: Tensor, own: Tensor, target: Target) -> set[str]:
    """Which rules on tensors call one rank's local tensor wrong.

    Args:
        actual: the candidate's, or None where it has none, which every rule sees.
        expected: its slice of the float64 reference.
        own: its slice of the reference's result in the case's dtype.
        target: the full tensors, for the reference's own largest error.
    """
    if actual is None or actual.shape != expected.shape:
        return set(_ON_TENSORS)
    found = set()
    try:
        torch.testing.assert_close(actual.detach(), own)
    except AssertionError:
        found.add("assert_close")
    if expected.numel() == 0:
        return found
    error = (actual.detach().double() - expected).abs()
    if not float(error.max()) <= twice_own_error(target):
        found.add("twice own error")
    if not float(error.norm()) <= FROBENIUS * float(expected.norm()):
        found.add("frobenius 8.3 %")
    return found


def twice_own_error(target: Target) -> float:
    """2 · max|own − exact| + 2 · max|own + 0.3 − 0.3 − own| of the full tensor: the second term,
    in the dtype, is what keeps the rule usable where the reference happens to be exact."""
    own = target.own
    assert own is not None, "the bundle was written without the reference's own results"
    if not own.numel():
        return 0.0
    rounding = float((own + 0.3 - 0.3 - own).abs().max())
    return 2 * float((own.double() - target.value).abs().max()) + 2 * rounding


def seen(outcomes: Iterable[RankReport | Mismatch]) -> set[str]:
    """Which rules alarm on a case, `tpcheck` and `.sum() loss` excepted. A rank that raises,
    dies or hangs, or whose parameters don't fit, is seen by any test, whatever its rule, unless
    it only forwards and the rank fails later."""
    from tpcheck.verdict import Mismatch

    found: set[str] = set()
    for outcome in outcomes:
        if isinstance(outcome, Mismatch):
            found |= set(_ON_TENSORS)
            late = outcome.detail.get("phase") in ("backward", "step")
            found |= set() if late else {"forward only"}
        elif not outcome.compared:
            found |= {*_ON_TENSORS, "forward only"}
        else:
            found |= outcome.alarms
            if OUTPUTS & {m.kind for m in outcome.mismatches}:
                found.add("forward only")
    return found
