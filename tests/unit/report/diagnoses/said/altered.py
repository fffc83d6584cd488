"""The sentences of `tpcheck/causes/altered.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DX, OUT, Said
from tpcheck.causes.altered import (
    AlongDim,
    OwnPartOnly,
    Regathered,
    Regrouped,
    Reversed,
    Rotated,
    RowsMixed,
    ScaledByOwnParts,
)
from tpcheck.causes.where import Side

SAID: list[Said] = [
    (
        Regathered(OUT, Side.INPUT, "x", AlongDim(0, instead_of=1)),
        "output is what the parts of x, gathered along dim 0 instead of 1, would give",
        {"input": "x", "gathered": "gathered along dim 0 instead of 1"},
    ),
    (
        Regathered(DX, Side.COTANGENT, "output", Reversed()),
        "input_grad x is what the parts of output, in reversed order, would give",
        {"cotangent": "output", "gathered": "in reversed order"},
    ),
    (
        Regathered(OUT, Side.INPUT, "x", Rotated()),
        "output is what the parts of x, one rank off, would give",
        {"input": "x", "gathered": "one rank off"},
    ),
    (
        OwnPartOnly(OUT, (0, 1), ("k", "v")),
        "output of ranks [0, 1] is what the reference gives for their own part of k, v alone: what "
        "other ranks hold of it never arrives (forward)",
        {"ranks": [0, 1], "inputs": ["k", "v"]},
    ),
    (
        Regrouped(OUT, "w", 1, (2, 3), (0, 2, 1)),
        "output is what dim 1 of w regrouped, 2 × 3 transposed, would give: what meets it (heads, "
        "say) arrives in another order",
        {"parameter": "w", "order": [0, 2, 1]},
    ),
    (
        RowsMixed(OUT, "x", 1),
        "output is right where all rows of x along dim 1 are the same: rows meet the results of "
        "other rows",
        {"mixed": "x", "dim": 1},
    ),
    (
        ScaledByOwnParts(DX, ("weight", "d output")),
        "input_grad x is what the reference gives for each rank's part of weight, d output by "
        "itself, added up: a scale, or a largest number, of all parts is taken of one",
        {"parts_of": ["weight", "d output"]},
    ),
]  # fmt: skip
