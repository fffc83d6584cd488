"""What is known on disk: after each turn, whole after a kill, one run at a time."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.unit.fuzz.findings import finding
from tpcheck import Case
from tpcheck.errors import InvalidArgument
from tpcheck.evidence.judged import Judged
from tpcheck.fuzz import state as room
from tpcheck.fuzz.known import MOST_OPEN, Known
from tpcheck.fuzz.state import State
from tpcheck.search.reach import Open, Reach
from tpcheck.vocabulary import Kind

TF32 = Open("not checked: tf32", case=Case(seed=1))
REACH = Reach(1, frozenset({2}), frozenset({8}), {(Kind.OUTPUT, "y"): Judged(4, 4, 1, 1)})


ODD: list[dict[str, Any]] = [
    {"page": None}, {"id": 5}, {"signatures": [5]}, {"case": []}, {"case": {"dims": 3}},
    {"counterexample": None}, {"found_after": "1"}, {"shrunk": "no"}, {"more": 1},
]  # fmt: skip


def filled(folder: Path) -> State:
    state = State(folder)
    assert state.add("a.py::a", shown=[{"x", "y"}, {"x"}, {"z"}], seconds=2.0, worst=0.5) == 2
    known = state.of("a.py::a")
    known.put(finding())
    known.open = [TF32, Open("threads fails and gloo passes")]
    assert state.add("a.py::a", shown=[{"x", "w"}], seconds=1.0, worst=0.25, reach=REACH) == 1
    state.add("b.py::b", shown=[{"x"}], seconds=1.0)
    return state


def test_a_later_run_knows_what_an_earlier_one_did(tmp_path: Path) -> None:
    first = filled(tmp_path)
    expected = {name: known.to_dict() for name, known in first.checks.items()}
    first.close()
    for _ in range(2):  # from turns, then from what was put together
        again = State(tmp_path)
        assert {name: known.to_dict() for name, known in again.checks.items()} == expected
        again.close()
    known = Known.from_dict(expected["a.py::a"])
    assert (known.turns, known.cases, known.seconds, known.worst) == (2, 4, 3.0, 0.5)
    assert known.open == [TF32, Open("threads fails and gloo passes")] and known.reach == REACH
    assert known.findings == [finding()] and known.told() == {"race kernel:7"}


def test_a_case_that_alone_showed_something_counts_once() -> None:
    known = Known()
    known.add(1, [{"x", "y"}, {"x"}, {"z", "v"}], 1.0, 0.0)
    assert known.lone == 2
    known.add(1, [{"y", "z"}], 1.0, 0.0)
    assert known.lone == 1, "the third, by v"


def test_a_line_that_was_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    first = filled(tmp_path)
    before = copy.deepcopy(first.of("a.py::a").to_dict())
    first.add("a.py::a", shown=[{"new"}], seconds=9.0)
    first.close()
    text = first.path.read_text()
    first.path.write_text(text[: text.rindex("\n", 0, -1) + 20])
    again = State(tmp_path)
    assert again.of("a.py::a").to_dict() == before


def test_fresh_forgets(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "choices").mkdir()
    state = State(tmp_path, fresh=True)
    assert not state.checks and not state.choices.exists()


def test_a_file_of_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "state.jsonl").write_text('{"schema_version": 1}\n{"check": "a", "turns": 1}\n')
    with pytest.raises(InvalidArgument, match="not a state of tpcheck fuzz"):
        State(tmp_path)
    (tmp_path / "state.jsonl").write_text("[1, 2]\n")
    with pytest.raises(InvalidArgument, match="--fresh"):
        State(tmp_path)


def test_a_state_that_can_not_be_written_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "TOGETHER", 1)
    monkeypatch.setattr(room.files, "replace", full)
    state = object.__new__(State)
    state.folder, state.path, state.checks = tmp_path, tmp_path / "state.jsonl", {}
    state._lines = state._bytes = 0
    state.add("a.py::a")
    with pytest.raises(InvalidArgument, match="No space left"):
        state.add("a.py::a")


def test_one_run_at_a_time(tmp_path: Path) -> None:
    state = State(tmp_path)
    code = "from pathlib import Path; from tpcheck.fuzz.state import State; "
    code += f"State(Path({str(tmp_path)!r}))"
    other = [sys.executable, "-c", code]
    done = subprocess.run(other, capture_output=True, text=True, cwd=ROOT)
    assert "another tpcheck fuzz runs" in done.stderr
    state.close()
    assert subprocess.run(other, capture_output=True, cwd=ROOT).returncode == 0


def test_lines_are_put_together_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "TOGETHER", 3)
    state = State(tmp_path)
    for _ in range(20):
        state.add("a.py::a", shown=[{"x"}], seconds=1.0)
        assert len(state.path.read_text().splitlines()) <= 5
    state.close()
    assert State(tmp_path).of("a.py::a").turns == 20


def test_what_cases_of_earlier_runs_got_to_counts_until_others_are_drawn(tmp_path: Path) -> None:
    first = State(tmp_path)
    for number in range(3):
        first.add("a.py::a", reach=REACH, anew=number == 1)
        first.add("a.py::a", turns=0)  # a saved case ran
    assert first.of("a.py::a").reach == REACH.after(REACH)
    first.close()
    again = State(tmp_path)
    assert again.of("a.py::a").reach == REACH.after(REACH)
    again.close()


def test_so_many_cases_are_open_each_once() -> None:
    known = Known()
    cases = [Open("tf32", case=Case(seed=number)) for number in range(MOST_OPEN + 3)]
    known.leave_open([*cases[:2], *cases])
    assert known.open == cases[:MOST_OPEN]
    known.settle(Case(seed=1))
    known.leave_open([Open("alone"), Open("alone")])
    assert known.open == [cases[0], *cases[2:MOST_OPEN], Open("alone")]
    full = Known()
    full.leave_open([*(Open(str(number)) for number in range(MOST_OPEN + 1)), cases[0]])
    assert full.open[-1] == cases[0] and len(full.open) == MOST_OPEN + 1, "of no case, and of one"


@pytest.mark.parametrize(
    "words",
    [
        {"open": [{"reason": 5, "case": None}]},
        {"open": [{"reason": "", "case": None}]},
        {"open": [{"reason": "r", "case": "text"}]},
        {"open": {"reason": "r"}},
        {"open": 0},
        {"reach": {"cases": float("inf"), "degrees": [], "impossible": [], "judged": []}},
        {"reach": [], "anew": True},
        {"turns": float("inf")},
        {"turns": -3},
        {"seconds": "nan"},
        {"worst": -1.0},
        *({"findings": [{**finding().to_dict(), **odd}]} for odd in ODD),
    ],
)
def test_a_state_that_is_garbled_is_one_clear_line(tmp_path: Path, words: dict[str, Any]) -> None:
    state = State(tmp_path)
    state.add("a.py::a", shown=[{"x"}], reach=REACH, anew=True)
    state.close()
    *lines, last = state.path.read_text().splitlines()
    state.path.write_text("\n".join([*lines, json.dumps(json.loads(last) | words), ""]))
    for garbled in (False, True):  # one turn; and all that is known, as it is put together
        if garbled:
            known = {**Known().to_dict(), **words}
            state.path.write_text(f"{lines[0]}\n{json.dumps({'check': 'a', 'known': known})}\n")
        with pytest.raises(InvalidArgument, match="give --fresh to begin anew"):
            State(tmp_path)


def test_a_file_that_has_grown_is_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MUCH", 2000)
    state = State(tmp_path)
    for _ in range(50):
        state.add("a.py::a", shown=[{"x"}], reach=REACH)
    assert state.path.stat().st_size < 4000 and state.of("a.py::a").reach.cases == 50
    state.close()
    again = State(tmp_path)
    assert again.of("a.py::a").reach.cases == again.of("a.py::a").turns == 50
    again.close()
