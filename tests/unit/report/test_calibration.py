"""The tables of `tpcheck calibrate`."""

from __future__ import annotations

from tpcheck.figures.thresholds import Threshold
from tpcheck.report import calibration


def test_the_table_has_one_column_per_degree() -> None:
    rows = [
        Threshold(subject, tp, "float32", "whole", 100, 1e-7, tp * 1e-7)
        for subject in ("row", "stack")
        for tp in (2, 8)
    ]
    table = calibration.sensitivity(rows).splitlines()
    assert len(table) == 3 and table[0].split()[-2:] == ["tp=2", "tp=8"]
    assert table[1].split()[-2:] == ["2.0e-07", "8.0e-07"]


def test_a_cell_that_was_not_measured_is_a_dash() -> None:
    """Of a check that could not go on after its first degree."""
    rows = [Threshold("row", tp, "float32", "whole", 1, 1e-7, 1e-7) for tp in (2, 8)]
    rows.append(Threshold("stack", 2, "float32", "whole", 1, 1e-7, 1e-7))
    assert calibration.sensitivity(rows).splitlines()[2].split()[-2:] == ["1.0e-07", "–"]
