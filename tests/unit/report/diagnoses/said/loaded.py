"""The sentences of `tpcheck/causes/loaded.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import Said
from tpcheck.causes.loaded import (
    ComputedOtherwise,
    LoadedAnother,
    LoadedApart,
    LoadedElements,
    LoadedIntegers,
    LoadedNaN,
    LoadedNothing,
    LoadedRounded,
    LoadedRows,
    LoadedScaled,
)

SAID: list[Said] = [
    (LoadedNaN("w", 0), "w as loaded on rank 0 has uninitialized elements (tpcheck's NaN)", {}),
    (
        LoadedNothing("w.exp_avg", 1),
        "w.exp_avg as loaded on rank 1 is what a new optimizer has, nothing or zeros",
        {"parameter": "w.exp_avg"},
    ),
    (
        LoadedIntegers("kept", 1),
        "kept as loaded on rank 1 has integers or bools that are not the checkpoint's",
        {"parameter": "kept"},
    ),
    (LoadedIntegers("kept", 1, 0), "kept as loaded on rank 1 holds rank 0's part", {"of_rank": 0}),
    (LoadedRounded("w", 0), "w as loaded on rank 0 was rounded to a lower precision", {}),
    (
        LoadedRows("w", 0, 1, (2, 2), repeated=True),
        "w as loaded on rank 0 holds the indices [2, 2] of dim 1, some of them more than once",
        {"dim": 1, "rows": [2, 2]},
    ),
    (
        LoadedRows("w", 1, 0, (0, 1), repeated=False, due=(2, 3)),
        "w as loaded on rank 1 holds the indices [0, 1] of dim 0; [2, 3] are due",
        {"dim": 0, "rows": [0, 1], "due": [2, 3]},
    ),
    (
        LoadedElements("w", 0),
        "w as loaded on rank 0 holds elements of the full weight, sharded or laid out otherwise",
        {"rank": 0},
    ),
    (
        LoadedScaled("w", 0, 2.0),
        "w as loaded on rank 0 is 2 times what it should be",
        {"factor": 2.0},
    ),
    (
        LoadedAnother("q", 0, ("k", "q")),
        "q as loaded on rank 0 holds rows of k, q",
        {"of": ["k", "q"]},
    ),
    (
        LoadedApart("w", 0),
        "w as loaded on rank 0 differs from other ranks', which hold the same parameter",
        {"rank": 0},
    ),
    (
        ComputedOtherwise("b", 1, nan=True),
        "the buffer b, which no checkpoint holds, on rank 1 has uninitialized elements (tpcheck's "
        "NaN): the candidate must compute it",
        {"nan": True},
    ),
    (
        ComputedOtherwise("b", 1, rounded=True),
        "the buffer b, which no checkpoint holds, on rank 1 was computed in a lower precision than "
        "the reference's",
        {"rounded": True},
    ),
    (
        ComputedOtherwise("b", 1, factor=0.5),
        "the buffer b, which no checkpoint holds, on rank 1 is not what the reference computes: it "
        "is 0.5 times that",
        {"factor": 0.5},
    ),
    (
        ComputedOtherwise("b", 1, dim=0, rows=(1, 0)),
        "the buffer b, which no checkpoint holds, on rank 1 is not what the reference computes: it "
        "has the indices [1, 0] of dim 0",
        {"rows": [1, 0]},
    ),
    (
        ComputedOtherwise("b", 1, apart=True),
        "the buffer b, which no checkpoint holds, on rank 1 is not what the reference computes, "
        "nor what other ranks have",
        {"apart": True},
    ),
]  # fmt: skip
