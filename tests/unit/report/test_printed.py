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
    assert head == f"  rank 0 printed ({20 - LINES} more lines; replay -v shows all):"
    assert [line.strip() for line in shown] == text.splitlines()[-LINES:]
    assert len(lines({0: text}, verbose=True)) == 21


def test_what_torch_logs_of_an_error_that_it_raises_is_left_out() -> None:
    where = "E1128 09:27:07.707000 {} torch/_subclasses/fake_tensor.py:3090] RuntimeError: a and b"
    logged = {rank: f"[rank{rank}]:{where.format(9791 + rank)}\n" * 15 for rank in (0, 1)}
    assert lines(logged, verbose=False) == [
        "  ranks 0,1 printed what torch logs, no more (15 more lines; replay -v shows all)"
    ]
    own = logged | {0: "[rank0]: E of mine\n" + logged[0] + "torch/_subclasses/x.py:1] of mine\n"}
    head, *shown, last = lines(own, verbose=False)
    assert head == "  rank 0 printed (15 more lines; replay -v shows all):"
    assert shown == ["    [rank0]: E of mine", "    torch/_subclasses/x.py:1] of mine"]
    assert last == "  rank 1 printed what torch logs, no more (15 more lines; replay -v shows all)"
    assert len(lines(own, verbose=True)) == 2 + 15 + 2 + 15
    uneven = {0: "mine", 1: logged[1] + "mine", 2: logged[0] + "\n" + logged[0], 3: "mine"}
    assert lines(uneven, verbose=False) == [
        "  ranks 0,1,3 printed (15 more lines; replay -v shows all):",
        "    mine",
        "  rank 2 printed what torch logs, no more (31 more lines; replay -v shows all)",
    ]
    warned = logged[0].replace("E1128", "W1128")
    assert len(lines({0: warned}, verbose=False)) == 1 + LINES


def test_a_page_and_a_report_have_it_and_no_escape_sequence() -> None:
    found = replace(EXAMPLE, printed={0: "\x1b[31mhello\n"})
    shown = page(replace(FAILED, counterexample=found))
    assert "  rank 0 printed:\n    \\x1b[31mhello" in shown
    assert counterexample(found)["printed"] == {"0": "\x1b[31mhello\n"}
