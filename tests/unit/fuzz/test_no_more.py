"""Saved cases that are none of a check's any more, and lists that were not run whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.fuzz.findings import finding
from tests.unit.fuzz.test_hunting import Crew
from tpcheck import Argument, Case, kernel_check
from tpcheck.fuzz.hunting import Hunting, Listener
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import Came, How, Subject, Turn
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.options import Options
from tpcheck.search.reach import Open, Reach

FOUND = finding(shrunk=True)
CASE = Case.from_dict(FOUND.case)
CHECK = kernel_check(torch.neg, reference=torch.neg, arguments={"x": Argument("n")}, name="a")
LISTED = replace(CHECK, spec=replace(CHECK.spec, cases=[CASE, replace(CASE, seed=1)]))
DECIDES = Came([frozenset("x")], reach=Reach(1, frozenset({1})))
WHY = "the case has no dim 'n'"

Hunts = Callable[..., tuple[Hunting, list[str]]]


@pytest.fixture
def hunts(corpus: Corpus, tmp_path: Path) -> Hunts:
    """A run, and what it tells."""

    def begun(check: Any = CHECK, *left: Open) -> tuple[Hunting, list[str]]:
        state, told = State(tmp_path / "state"), list[str]()
        known = state.of("a.py::a")
        known.findings, known.open = [FOUND], [*left]
        listener = Listener(said=lambda title, line: told.append(f"{title}: {line}"))
        about: dict[str, Any] = {"ranks": 2, "time_limit": 5.0, "listener": listener}
        of = [Subject("a.py::a", check)]
        return Hunting(of, Options(corpus=corpus), state, **about), told

    return begun


def test_a_finding_is_none_and_its_file_stays(hunts: Hunts, corpus: Corpus) -> None:
    file = corpus.save(Saved(FOUND.id, "a", ("a.py", "a"), CASE, "gloo", [], {}))
    hunting, told = hunts()
    hunting.note(Turn(0, How.AGAIN, 1, 1, saved=CASE, id=FOUND.id), Came(stale=WHY))
    hunting.note(Turn(0, How.LOOK, 1, 1), DECIDES)
    assert not hunting.so_far().findings and hunting.so_far().exit_code == 0
    assert file.exists() and len(told) == 1 and told[0].endswith(WHY) and FOUND.id in told[0]


def test_what_could_not_be_decided_is_forgotten_and_told(hunts: Hunts) -> None:
    other = replace(CASE, seed=5)
    hunting, told = hunts(CHECK, Open("late", case=other))
    hunting.note(Turn(0, How.AGAIN, 1, 1, saved=other), Came(stale=WHY))
    assert not hunting.checks[0].known.open and hunting.so_far().findings == [FOUND]
    (line,) = told
    assert other.describe() in line and line.endswith(WHY)


def test_a_list_that_was_not_run_whole_is_told(hunts: Hunts) -> None:
    hunting, told = hunts(LISTED)
    hunting.checks[0].again.clear()
    hunting.run(Crew(lambda turn: DECIDES), turns=1)  # type: ignore[arg-type]
    assert told == ["a: not all of its 2 listed cases ran: give it more time"]
    told.clear()
    hunting.run(Crew(lambda turn: Came()), turns=1)  # type: ignore[arg-type]
    assert hunting.checks[0].exhausted and not told


def test_a_degree_without_a_case_is_told(hunts: Hunts) -> None:
    hunting, told = hunts()
    hunting.checks[0].again.clear()
    none = replace(DECIDES, reach=replace(DECIDES.reach, impossible=frozenset({4})))
    hunting.run(Crew(lambda turn: none), turns=1)  # type: ignore[arg-type]
    (line,) = told
    assert line.startswith("a: its spec has no case at tp=4")


def test_a_saved_case_of_a_check_that_is_gone_is_told(
    hunts: Hunts, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpcheck.fuzz.hunting.file_of", lambda check: str(tmp_path / "a.py"))
    (tmp_path / "a.py").write_text("")
    corpus.save(Saved("def456", "gone", (str(tmp_path / "a.py"), "gone"), CASE, "gloo", [], {}))
    _, told = hunts()
    assert len(told) == 1 and "def456" in told[0] and "which is gone" in told[0]
