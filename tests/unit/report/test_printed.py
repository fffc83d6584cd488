"""What a candidate printed, as a page shows it."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.report.test_text import EXAMPLE, FAILED
from tpcheck.report.as_json import counterexample
from tpcheck.report.printed import LINES, lines
from tpcheck.report.text import page


def test_ranks_that_printed_the_same_are_told_together() -> None:
    told = lines({1: "b\n", 0: "a\n", 2: "a"}, verbose=False)
    assert told == ["  ranks 0,2 printed:", "    a", "  rank 1 printed:", "    b"]
    assert lines({}, verbose=True) == []


def test_of_many_lines_the_last_are_shown_unless_all_are_asked_for() -> None:
    text = "\n".join(f"line {number}" for number in range(20))
    head, *shown = lines({0: text}, verbose=False)
    assert head == f"  rank 0 printed ({20 - LINES} lines before; -v shows all):"
    assert [line.strip() for line in shown] == text.splitlines()[-LINES:]
    assert len(lines({0: text}, verbose=True)) == 21


def test_a_page_and_a_report_have_it_and_no_escape_sequence() -> None:
    found = replace(EXAMPLE, printed={0: "\x1b[31mhello\n"})
    shown = page(replace(FAILED, counterexample=found))
    assert "  rank 0 printed:\n    \\x1b[31mhello" in shown
    assert counterexample(found)["printed"] == {"0": "\x1b[31mhello\n"}
