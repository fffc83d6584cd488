"""The arithmetic of bench on made-up numbers: medians, ratios, what is noise; its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.cli.commands import complaint
from tpcheck.bench import plot
from tpcheck.bench.compare import SCHEMA_VERSION, Difference, compare, figures, load, spread
from tpcheck.bench.gate import Gate
from tpcheck.bench.grid import Cell, Grid
from tpcheck.bench.report import BenchReport, render
from tpcheck.cli.console import Console
from tpcheck.errors import InvalidArgument
from tpcheck.report import machine

ABOUT = {
    "commit": "abc", "tpcheck": "1", "torch": "2", "cores": 2, "processor": "of today", "load": 0.5,
}  # fmt: skip
SPENT = {"drawing": 3.0, "nothing": 0.0, "ranks": 9.0}
CELL = Cell("gloo", 2, 16, "float32", [30.0, 50.0, 40.0], [10.0, 10.0, 20.0], SPENT)
LARGE = Cell("threads", 4, 64, "float64", [900.0], [300.0], {"ranks": 900.0})
REPORT = BenchReport(ABOUT, 4, table=[CELL, LARGE], gate=Gate("properties", 3, 90, 30.0, 45.0))


@pytest.mark.parametrize(
    ("before", "now", "judged"),
    [
        ([10, 11, 12], [13, 14, 15], "slower"),
        ([10, 11, 12], [7, 8, 9], "faster"),
        ([10, 11, 12], [12, 13, 14], "within the noise"),
        ([10, 11, 12], [8, 9, 10], "within the noise"),
        ([10, 11, 40], [12, 13, 14], "within the noise"),
        ([10, 11], [20, 21, 22], "too few runs"),
        ([10, 11, 12], [20], "too few runs"),
    ],
)
def test_a_difference_is_one_where_the_repetitions_do_not_overlap(
    before: list[float], now: list[float], judged: str
) -> None:
    assert Difference("x", before, now).judged == judged


def test_ratios_are_of_medians_and_spreads_half_of_the_range() -> None:
    assert Difference("x", [1.0, 2.0, 90.0], [6.0, 5.0, 7.0]).ratio == 3.0
    assert spread([8.0, 10.0, 14.0]) == pytest.approx(0.3)
    assert (CELL.median, CELL.ratio) == (40.0, 4.0)
    assert Gate("x", 1, 90, 30.0, 45.0).rate == 3.0


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    data = REPORT.to_dict()
    machine.write(path, machine.dumps(data))
    read = load(path)
    assert read == figures(data["table"]) and len(read) == 4
    assert read["gloo tp 2 hidden 16 float32"] == CELL.laps
    assert read["gloo tp 2 hidden 16 float32, bare loop"] == CELL.bare
    written = json.loads(path.read_text())
    assert written["about"]["commit"] == "abc" and written["schema_version"] == SCHEMA_VERSION
    assert written["table"][0]["ratio"] == 4.0 and written["table"][0]["spent"] == SPENT
    assert written["gate"]["rate"] == 3.0


def test_runs_are_compared_in_what_they_have_in_common() -> None:
    (one,) = compare({"a": [1.0], "b": [2.0]}, {"b": [4.0], "c": [8.0]})
    assert (one.what, one.ratio) == ("b", 2.0)
    assert one.to_dict() == {
        "what": "b", "before": [2.0], "now": [4.0], "ratio": 2.0, "judged": "too few runs",
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match="no cell in common"):
        compare({"a": [1.0]}, {"b": [1.0]})


def _without(name: str) -> dict[str, Any]:
    cell = REPORT.to_dict()["table"][0]
    del cell[name]
    return {"schema_version": SCHEMA_VERSION, "table": [cell]}


def _with(**more: Any) -> dict[str, Any]:
    cell = REPORT.to_dict()["table"][0] | more
    return {"schema_version": SCHEMA_VERSION, "table": [cell]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "it has no table"),
        ({"checks": []}, "it has no table"),
        ({"table": [{}]}, "has schema_version None"),
        ({"schema_version": SCHEMA_VERSION, "table": []}, "empty table"),
        ({"schema_version": SCHEMA_VERSION, "table": [3]}, "a cell is 3"),
        (_without("laps"), "a cell is"),
        (_without("dtype"), "a cell is"),
        (_with(laps=[]), "a cell is"),
        (_with(laps=[1.0, "x"]), "a cell is"),
        (_with(bare=[0.0]), "a cell is"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(tmp_path: Path, data: Any, said: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidArgument) as caught:
        load(path)
    assert said in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value)


def test_bars_are_as_long_as_their_values() -> None:
    assert [len(plot.bar(x, 8.0)) for x in (8.0, 4.0, 0.01, 0.0)] == [
        plot.WIDE,
        plot.WIDE // 2,
        1,
        0,
    ]
    head, first, last = plot.time_line(CELL)
    assert "12.0 ms" in head and "hidden 16" in head
    assert first.endswith("3.00 ms   25%  " + "#" * (plot.WIDE // 3))
    assert last.endswith("75%  " + "#" * plot.WIDE) and "nothing" not in first + last
    assert [line.count("#") for line in plot.ratios([CELL, LARGE])] == [plot.WIDE, 30]


def test_all_that_was_measured_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=150)
    for one in render(REPORT):
        console.print(one)
    console.print(plot.differences([Difference("this", [10.0, 11.0, 12.0], [20.0, 22.0, 24.0])]))
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "at abc, torch 2, 2 cores of of today, load 0.5 before",
        "40.0 4.00 ×", "900.0 3.00 ×", "3.0 cases per second",
        "this │ 11.0 │ 9% │ 22.0 │ 9% │ 2.00 │ slower",
    ):  # fmt: skip
        assert text in shown, (text, shown)


@pytest.mark.parametrize(
    "bad",
    [
        {"sizes": (15,)},
        {"sizes": (0,)},
        {"degrees": (1,)},
        {"degrees": (65,)},
        {"dtypes": ("float31",)},
        {"engines": ("nccl",)},
    ],
)
def test_a_table_that_can_not_be_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Grid(**bad)
    assert Grid().sizes == (16, 64, 256, 1024)


def test_that_two_tables_have_nothing_in_common_is_said_before_one_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.json"
    path.write_text(machine.dumps(REPORT.to_dict()))
    line = complaint(capsys, "bench", "--against", str(path), "--sizes", "8", "--tp", "2")
    assert "no cell in common; the earlier one has gloo tp 2 hidden 16 float32, " in line
    assert set(figures(REPORT.to_dict()["table"])) & set(Grid().names())
