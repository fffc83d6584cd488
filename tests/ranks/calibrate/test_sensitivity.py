"""The smallest fault that is found, measured on real ranks."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from properties.linear import column_linear, row_linear
from tests import candidates
from tpcheck import Check
from tpcheck.calibrate.sensitivity import HIGHEST, STEPS, Measurement, Subject, measured
from tpcheck.cli.main import main
from tpcheck.engines.engine import Engine
from tpcheck.errors import InvalidArgument
from tpcheck.figures.thresholds import Threshold
from tpcheck.search.session import Session, open_session

ROW = Subject(
    "row",
    "properties/linear.py::row_linear",
    candidates.linear_dims(16, 16, seq=4, bias=True),
)


def thresholds(
    gloo: Engine, check: Check, subject: Subject, dtype: str = "float64", runs: int = 3
) -> list[Threshold]:
    return measured(subject, check, gloo, 2, dtype, runs=runs, seed=0)


@pytest.mark.parametrize(
    "dtypes", [("bfloat16",), pytest.param(("float64", "bfloat16"), marks=pytest.mark.sweep)]
)
def test_a_row_linear(gloo: Engine, dtypes: tuple[str, ...]) -> None:
    told: list[Threshold] = []
    asked: dict[str, Any] = {"degrees": (2,), "dtypes": dtypes, "runs": 3}
    measurement = Measurement([ROW], [row_linear], **asked, finished=told.append)
    measurement.run(Session(gloo))
    rows = measurement.rows
    assert told == rows and not measurement.troubled
    found = {(row.dtype, row.fault): row for row in rows}
    assert len(found) == 2 * len(dtypes)
    for row in rows:
        assert row.median <= row.p99 < math.inf
        # on the grid
        assert math.log10(row.p99) * STEPS == pytest.approx(round(math.log10(row.p99) * STEPS))
    # a fault of logic is far above, and no rounding of a partial sum is called a fault
    within = {"float64": (2**-53, 1e-11), "bfloat16": (2**-9, 0.5)}
    for dtype in dtypes:
        low, high = within[dtype]
        assert low < found[dtype, "whole"].p99 < high
        assert found[dtype, "whole"].p99 <= found[dtype, "row"].p99


@pytest.mark.sweep  # a campaign's are in each run
def test_side_by_side_the_same_rows_come_in_the_same_order(gloo: Engine) -> None:
    without = Subject("without", "properties/linear.py::column_linear", ROW.dims)
    asked: dict[str, Any] = {"degrees": (2,), "dtypes": ("float64",), "runs": 1}
    told: list[list[Threshold | str]] = []
    for jobs in (1, 2):
        lines: list[Threshold | str] = []
        measurement = Measurement(
            [without, ROW],
            [column_linear, row_linear],
            **asked,
            finished=lines.append,
            failed=lambda title, why, lines=lines: lines.append(f"{title}: {why}"),
        )
        if jobs == 1:
            measurement.run(Session(gloo))
        else:
            measurement.run_side_by_side(partial(open_session, "gloo", 2), jobs)
        told.append(lines)
    assert told[0] == told[1] and len(told[0]) == 3
    assert str(told[0][0]).startswith("without: ")


def test_what_is_never_found_is_infinite(gloo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpcheck.calibrate import sensitivity

    monkeypatch.setattr(sensitivity, "HIGHEST", round(math.log10(1e-16) * STEPS))
    rows = thresholds(gloo, row_linear, ROW, runs=1)
    assert [row.p99 for row in rows] == [math.inf, math.inf]
    json.dumps([row.to_dict() for row in rows], allow_nan=False)
    assert 10 ** (HIGHEST / STEPS) == 100


def test_without_a_partial_sum_there_is_nothing_to_measure(gloo: Engine) -> None:
    with pytest.raises(InvalidArgument, match="no all-reduce in forward"):
        thresholds(gloo, column_linear, ROW)


def test_a_candidate_that_fails_anyway_is_refused(gloo: Engine) -> None:
    from fixtures.mutants import MUTANTS

    wrong = next(m for m in MUTANTS if m.name == "row_linear_averaged")
    with pytest.raises(InvalidArgument, match="fails without any fault"):
        thresholds(gloo, wrong.check, ROW)
    with pytest.raises(InvalidArgument, match="one rank raises"):
        thresholds(gloo, candidates.check(candidates.OneRankRaises), ROW)


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    asked = ["--tp", "2", "--dtype", "float32", "--runs", "1", "--json", str(out)]
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "sensitivity", ROW.target, "--dims", json.dumps(ROW.dims), *asked])
    assert left.value.code == 0
    rows = json.loads(out.read_text())["thresholds"]
    assert {row["fault"] for row in rows} == {"whole", "row"}
    assert all(2**-24 < row["p99"] < 1e-3 for row in rows)


def test_a_check_that_can_not_be_measured_is_told_and_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tpcheck.calibrate import sensitivity

    without = Subject("without", "properties/linear.py::column_linear", ROW.dims)
    monkeypatch.setattr(sensitivity, "SUBJECTS", (without, ROW))
    monkeypatch.setattr(sensitivity, "HIGHEST", round(math.log10(1e-16) * STEPS))
    out = tmp_path / "out.json"
    asked = ["--tp", "2", "--dtype", "float64", "--runs", "1", "--json", str(out)]
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "sensitivity", *asked])
    said = capsys.readouterr()
    assert left.value.code == 2 and said.err.startswith("tpcheck: without: ")
    found = json.loads(out.read_text())
    assert {row["subject"] for row in found["thresholds"]} == {"row"}
    assert "no all-reduce in forward" in found["troubled"]["without"]
    assert "UNKNOWN without" in said.out
