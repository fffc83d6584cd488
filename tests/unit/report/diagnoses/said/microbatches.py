"""The sentences of `tpcheck/causes/microbatches.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DW, OUT, Said
from tpcheck.causes.microbatches import (
    FirstPassRepeated,
    Moved,
    OnlyFirstSummed,
    PassesReordered,
    ReducedWithEach,
    SomePassesOnly,
)

SAID: list[Said] = [
    (
        FirstPassRepeated(DW, 3.0),
        "param_grad up.weight: the first microbatch is 4 times in the sum",
        {"factor": 3.0},
    ),
    (
        ReducedWithEach(DW, 16, 5),
        "param_grad up.weight: what has come together is summed over the ranks with each of 5 "
        "microbatches, so that the first is 16 times in it",
        {"times": 16, "of": 5},
    ),
    (
        SomePassesOnly(DW, (0, 1), 3),
        "param_grad up.weight: only the microbatches [0, 1] of 3 are in the sum",
        {"kept": [0, 1], "of": 3},
    ),
    (
        OnlyFirstSummed(DW, (0, 1)),
        "param_grad up.weight: only the first microbatch is summed over the ranks",
        {"ranks": [0, 1]},
    ),
    (
        PassesReordered(OUT, Moved.INPUTS, (1, 0)),
        "output is what the microbatches of the inputs, in the order 1, 0, would give",
        {"side": "inputs", "order": [1, 0]},
    ),
]  # fmt: skip
