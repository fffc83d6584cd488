"""bfloat16 in Triton's interpreter. By itself it keeps a value's bits as an integer and computes
with those. Here a value is the float32 that it stands for, rounded at each operation: sums and
products of two of 8 digits are exact, or rounded far below, in float32's 24, so that rounding twice
is rounding once (Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]
Bits = NDArray[np.uint16]


def rounded(values: NDArray[np.floating]) -> Values:
    """To the nearest bfloat16, ties to even, as float32."""
    return from_bits(to_bits(values))


def to_bits(values: NDArray[np.floating]) -> Bits:
    """The bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    exact = np.asarray(values, dtype=np.float32, order="C")
    bits = exact.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(exact), (bits >> 16) | np.uint32(0x40), nearest).astype(np.uint16)


def towards_zero(values: NDArray[np.floating]) -> Values:
    """Truncated, as a cast that asks for that."""
    bits = np.asarray(values, dtype=np.float32, order="C").view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def from_bits(bits: NDArray[np.integer]) -> Values:
    """What the bits stand for."""
    wide = np.asarray(bits, order="C").view(np.uint16).astype(np.uint32)
    return (wide << 16).view(np.float32)
