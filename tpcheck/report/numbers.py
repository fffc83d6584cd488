"""The numbers of a mismatch, as a page shows them."""

from __future__ import annotations

from tpcheck.evidence import Values
from tpcheck.verdict import Mismatch

#: Significant digits of the two values. Fewer hide small faults of half precisions; more, which
#: only say what `off by` says, cost a line. All 17 of a float64 are in JSON, and with `-v`.
DIGITS, ALL_DIGITS = 6, 17


def numbers(mismatch: Mismatch, *, verbose: bool) -> str:
    """`expected 0.8127  got 1.6254  off by 0.813, bound 3.1e-15  (64 of 64 differ)`. What the
    tensor as a whole says follows where the element is within its bound, and with `verbose`."""
    count = ALL_DIGITS if verbose else DIGITS
    text = (
        f"expected {_digits(mismatch.expected, count)}  got {_digits(mismatch.actual, count)}  "
        f"off by {_digits(mismatch.error, 3)}, bound {_digits(mismatch.bound, 2)}"
    )
    detail = mismatch.detail
    if not isinstance(detail, Values):
        return text
    text += f"  ({detail.wrong} of {detail.of} differ)"
    if verbose or _within(mismatch):
        text += _whole(detail)
    if detail.dtype is not None:
        text += f"  (dtype {detail.dtype}, expected {detail.expected_dtype})"
    return text


def _whole(detail: Values) -> str:
    text = ""
    if detail.gain_error is not None:
        bound = _digits(detail.gain_bound, 2)
        text += f"  (common scale error {detail.gain_error:.2g}, bound {bound})"
    if detail.norm_error is not None:
        bound = _digits(detail.norm_bound, 3)
        text += f"  (whole tensor: {detail.norm_error:.3g} σ, bound {bound} σ)"
    return text


def _within(mismatch: Mismatch) -> bool:
    """Whether the element alone would not have failed."""
    error, bound = mismatch.error, mismatch.bound
    return error is not None and bound is not None and error <= bound


def _digits(number: float | None, count: int) -> str:
    return "–" if number is None else f"{number:.{count}g}"
