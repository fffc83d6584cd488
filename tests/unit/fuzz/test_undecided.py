"""Which checks a hunt leaves UNKNOWN: by all of its turns and not by the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.fuzz.findings import finding
from tests.unit.fuzz.test_hunting import Crew
from tpcheck import Argument, Case, kernel_check
from tpcheck.evidence.judged import Judged
from tpcheck.fuzz.hunting import Hunting, Listener
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import Came, How, Subject, Turn
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.reach import Reach
from tpcheck.vocabulary import Kind

Y = (Kind.OUTPUT, "y")
CASE = Case(dims={"n": 4}, mesh={"tp": 1})
WORDS = [frozenset("x")]
CHECK = kernel_check(torch.neg, reference=torch.neg, arguments={"x": Argument("n")}, name="a")


def reach(elements: int = 4, judged: int | None = None) -> Reach:
    own = Judged(elements, elements if judged is None else judged, 1, int(judged != 0))
    return Reach(1, frozenset({1}), frozenset(), {Y: own})


AGREES = Came(WORDS, reach=reach())
EMPTY = Came(WORDS, reach=reach(0), reason="nothing was compared", more=True)
BLIND = Came(WORDS, reach=reach(4, 0), reason="judged in no case", more=True)
UNCHECKED = Came(WORDS, reach=reach(), reason="not checked: tf32", open=CASE.to_dict())
ONE_SIDED = Came(WORDS, reach=reach(), reason="threads fails and gloo passes")


@pytest.fixture
def hunts(tmp_path: Path) -> Iterator[Any]:
    """Runs that go on from one another: opens one, which the next one closes."""
    opened: list[Hunting] = []

    def open_one() -> Hunting:
        for one in opened:
            one.state.close()
        opened.clear()
        options = Options(corpus=Corpus(tmp_path / "corpus"))
        state, of = State(tmp_path / "state"), [Subject("a.py::a", CHECK)]
        opened.append(Hunting(of, options, state, ranks=1, time_limit=5.0, listener=Listener()))
        return opened[0]

    yield open_one
    opened[0].state.close()


def run(hunting: Hunting, *came: Came) -> list[Turn]:
    """Gives a run these turns; those that it took."""
    left, taken = list(came), list[Turn]()

    def answer(turn: Turn) -> Came:
        taken.append(turn)
        return left.pop(0)

    again = len(hunting.checks[0].again)
    hunting.run(Crew(answer), turns=len(came) - again)  # type: ignore[arg-type]
    assert not left
    return taken


def undecided(hunting: Hunting) -> str | None:
    (row,) = hunting.so_far().rows
    return row.undecided


@pytest.mark.parametrize("came", [EMPTY, BLIND])
def test_what_other_turns_judged_is_judged(hunts: Any, came: Came) -> None:
    hunting = hunts()
    run(hunting, came)
    assert undecided(hunting) is not None and hunting.so_far().exit_code == 3
    run(hunting, AGREES)
    run(hunting, came)
    assert undecided(hunting) is None and hunting.so_far().exit_code == 0
    again = hunts()
    run(again, came)
    assert undecided(again) is None, "earlier runs count"


def test_a_tensor_that_is_gone_by_the_next_run_is_not_missing(hunts: Any) -> None:
    run(hunts(), BLIND)
    of_z = replace(reach(), judged={(Kind.OUTPUT, "z"): Judged(4, 4, 1, 1)})
    hunting = hunts()
    run(hunting, Came(WORDS, reach=of_z))
    assert undecided(hunting) is None


def test_a_tensor_that_is_judged_in_no_turn_stays_unknown(hunts: Any) -> None:
    hunting = hunts()
    run(hunting, BLIND, EMPTY, BLIND)
    assert "judged in no case: output y" in str(undecided(hunting))


@pytest.mark.parametrize("came", [UNCHECKED, ONE_SIDED])
def test_a_case_that_can_not_be_decided_is_not_outvoted(hunts: Any, came: Came) -> None:
    hunting = hunts()
    run(hunting, AGREES, came, AGREES, AGREES)
    assert undecided(hunting) == came.reason and hunting.so_far().exit_code == 3


def test_that_case_is_run_again_by_the_next_run(
    hunts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(hunts(), UNCHECKED, AGREES)
    still = hunts()
    first, _ = run(still, UNCHECKED, AGREES)
    assert (first.how, first.saved, first.id) == (How.AGAIN, CASE, "")
    assert undecided(still) == "not checked: tf32"
    fixed = hunts()
    monkeypatch.setattr(fixed.corpus, "remove", {}.pop)  # it has no file
    run(fixed, Came(WORDS, reach=reach(), saved=False), AGREES)
    assert undecided(fixed) is None
    assert [turn.how for turn in run(hunts(), AGREES)] == [How.LOOK], "nothing is open"


def test_one_that_is_no_longer_a_case_of_the_check_is_forgotten(
    hunts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(hunts(), UNCHECKED)
    hunting = hunts()
    monkeypatch.setattr(hunting.corpus, "set_aside", None)  # it has no file
    run(hunting, Came(reason="no dim n", trouble=True), AGREES)
    assert undecided(hunting) is None and hunting.so_far().exit_code == 0


def test_what_is_of_no_case_is_open_until_a_run_does_not_meet_it(hunts: Any) -> None:
    run(hunts(), ONE_SIDED)
    assert undecided(hunts()) is None


def test_a_check_that_fails_is_not_unknown_as_well(hunts: Any) -> None:
    hunting = hunts()
    hunting.checks[0].known.put(finding(shrunk=True))
    run(hunting, UNCHECKED, EMPTY)
    assert undecided(hunting) is None and hunting.so_far().exit_code == 1
