"""What `fuzz` prints, of runs that are given."""

from __future__ import annotations

from tests.unit.fuzz.findings import finding
from tpcheck.figures.hunted import Hunted, Row
from tpcheck.report import hunted as report

RIGHT = Row("a.py::a", "right", 3, 30, 4.0, ran=20, features=70, lone=3, worst=0.31)
WRONG = Row("a.py::b", "wrong", 2, 10, 2.0, ran=10, features=50, lone=5, findings=1)
ODD = Row("a.py::c", "odd\x1b", troubled="its reference\nraises")


def test_a_finding_is_a_line_that_says_what_where_and_how_to_see_it() -> None:
    line = report.found(finding())
    assert line.split() == ["FAIL", "a", "race:", "kernel:7", "after", "3", "cases", "abc123"]
    assert "made smaller" in report.found(finding(shrunk=True))
    assert "no longer fails" in report.gone(finding())


def test_the_sums_say_what_ran_and_the_chance_of_something_new() -> None:
    text = report.sums(Hunted([RIGHT, WRONG], [finding()], seconds=61.0))
    assert "FAIL  2 checks, 1 finding, 30 cases (40 with earlier runs), 120 features" in text
    assert "the next case may show something new: chance 20.0%" in text


def test_what_could_not_run_is_said() -> None:
    text = report.sums(Hunted([RIGHT, ODD], lost=2, reason="interrupted after 20 cases"))
    assert "its reference raises" in text and "\x1b" not in text
    assert "interrupted after 20 cases" in text and "turns lost: 2" in text
    assert report.troubles(Hunted([RIGHT, ODD])) == {"odd\x1b": "its reference\nraises"}


def test_the_table_begins_with_what_was_found_and_is_cut_to_the_terminal() -> None:
    rows = list(report.rows(Hunted([RIGHT, WRONG]), 5))
    assert [row[0] for row in rows] == ["wrong", "right"]
    assert all(len(row) == len(report.COLUMNS) for row in rows)
    cut = list(report.rows(Hunted([RIGHT] * 9), 2))
    assert len(cut) == 3 and cut[-1][0] == "and 7 more"


def test_where_a_run_stands_is_one_line() -> None:
    line = report.standing(Hunted([RIGHT, WRONG], [finding()], seconds=60.0))
    assert line.startswith("1:00  30 cases, 0.5 per second") and "0.31 of its bound" in line
