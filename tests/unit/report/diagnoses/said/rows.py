"""The sentences of `tpcheck/causes/rows.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DX, OUT, Said
from tpcheck.causes.rows import RowsOfTokens, RowsPermuted

SAID: list[Said] = [
    (
        RowsPermuted(DX, 1, 0, tuple(range(14, 0, -1))),
        "input_grad x: dim 0 of rank 1 holds the rows [14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3]",
        {"dim": 0, "rows": list(range(14, 0, -1))},
    ),
    (RowsOfTokens(OUT, 1, 2), "output: 1 of 2 rows wrong, by token", {"rows": 1}),
]  # fmt: skip
