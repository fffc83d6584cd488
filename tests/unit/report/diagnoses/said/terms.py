"""The sentences of `tpcheck/causes/terms.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DW, OUT, Said
from tpcheck.causes.terms import SomeTermsOnly
from tpcheck.causes.where import Side

SAID: list[Said] = [
    (
        SomeTermsOnly(OUT, Side.INPUT, "x", 2, {0: (1,), 1: (1,)}, 2, own=True),
        "output of rank 0 counts only [1] of the 2 positions along dim 2 of x: one rank's term",
        {"kept": {"0": [1], "1": [1]}, "of": 2},
    ),
    (
        SomeTermsOnly(OUT, Side.INPUT, "x", 2, {0: (1,)}, 2, own=False),
        "output of rank 0 counts only [1] of the 2 positions along dim 2 of x: the parts don't "
        "cover it",
        {"kept": {"0": [1]}, "of": 2},
    ),
    (
        SomeTermsOnly(DW, Side.COTANGENT, "output", 1, {0: (0,)}, 2, own=True),
        "param_grad up.weight of rank 0 counts only [0] of the 2 positions along dim 1 of output: "
        "this rank's own (backward)",
        {"kept": {"0": [0]}, "of": 2},
    ),
    (
        SomeTermsOnly(DW, Side.COTANGENT, "output", 1, {0: (0,)}, 2, own=False),
        "param_grad up.weight of rank 0 counts only [0] of the 2 positions along dim 1 of output",
        {"kept": {"0": [0]}, "of": 2},
    ),
]  # fmt: skip
