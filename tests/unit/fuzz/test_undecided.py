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
from tpcheck.fuzz.standing import LOST
from tpcheck.fuzz.state import State
from tpcheck.fuzz.turn import Came, How, Subject, Turn
from tpcheck.report.reasons import NONE_DRAWN
from tpcheck.search.corpus import Corpus
from tpcheck.search.options import Options
from tpcheck.search.reach import Open, Reach
from tpcheck.vocabulary import Kind

CASE = Case(dims={"n": 4}, mesh={"tp": 1})
WORDS = [frozenset("x")]
CHECK = kernel_check(torch.neg, reference=torch.neg, arguments={"x": Argument("n")}, name="a")


def reach(elements: int = 4, judged: int | None = None, name: str = "y") -> Reach:
    own = Judged(elements, elements if judged is None else judged, 1, int(judged != 0))
    return Reach(1, frozenset({1}), frozenset(), {(Kind.OUTPUT, name): own})


def drawn(**more: Any) -> Came:
    return Came(WORDS, **{"reach": reach(), **more})


AGREES = drawn()
EMPTY = drawn(reach=reach(0), reason="nothing was compared")
BLIND = drawn(reach=reach(4, 0), reason="judged in no case")
TF32 = Open("not checked: tf32", case=CASE)
UNCHECKED = drawn(reason=TF32.reason, open=[TF32])
ONE_SIDED = drawn(reason="by threads alone", open=[Open("by threads alone")])
NOTHING = Came(WORDS, reason=TF32.reason, open=[TF32])  # no case counts
PASSES = Came(WORDS, saved=False, reach=reach(4, 0, "z"))  # one case judges little
TROUBLED = Came(reason="the engine is gone", trouble=True)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def hunts(tmp_path: Path, told: list[str]) -> Iterator[Any]:
    """Runs that go on from one another: opens one, which the next one closes."""
    opened: list[Hunting] = []

    def open_one() -> Hunting:
        for one in opened:
            one.state.close()
        opened.clear()
        options = Options(corpus=Corpus(tmp_path / "corpus"))
        state, of = State(tmp_path / "state"), [Subject("a.py::a", CHECK)]
        listener = Listener(said=lambda title, line: told.append(f"{title}: {line}"))
        opened.append(Hunting(of, options, state, ranks=1, time_limit=5.0, listener=listener))
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
    hunting.note(Turn(0, How.SHRINK, 1, 1), PASSES)
    assert undecided(hunting) is None and hunting.so_far().exit_code == 0


@pytest.mark.parametrize("came", [BLIND, UNCHECKED, ONE_SIDED, NOTHING])
def test_a_run_that_draws_no_case_of_a_check_leaves_it_as_it_was(hunts: Any, came: Came) -> None:
    before = hunts()
    run(before, came)
    assert undecided(before) is not None
    assert (undecided(before) or "")[:10] == (undecided(hunts()) or "")[:10]


def test_saved_cases_that_pass_are_no_pass_of_their_check(hunts: Any) -> None:
    hunting = hunts()
    hunting.note(Turn(0, How.AGAIN, 1, 1, saved=CASE, id="abc"), Came(WORDS, saved=False))
    assert undecided(hunting) == NONE_DRAWN and hunting.so_far().exit_code == 3
    run(hunting, AGREES)
    assert undecided(hunting) is None


def test_a_case_that_can_not_run_is_run_again_by_the_next_run(hunts: Any) -> None:
    first, raises = hunts(), Open("reference raised", case=CASE)
    run(first, AGREES, drawn(reason=raises.reason, trouble=True, open=[raises]))
    assert first.so_far().exit_code == 2
    again = hunts()
    run(again, TROUBLED, AGREES)
    assert undecided(again) == raises.reason and again.so_far().exit_code == 3
    fixed = hunts()
    run(fixed, PASSES, AGREES)
    assert undecided(fixed) is None


def test_what_other_code_got_to_is_worth_nothing(hunts: Any) -> None:
    run(hunts(), AGREES)
    changed = hunts()
    assert undecided(changed) is None
    run(changed, BLIND)
    assert undecided(changed) is not None
    renamed = hunts()
    run(renamed, drawn(reach=reach(name="z")))
    assert undecided(renamed) is None


def test_a_tensor_that_is_judged_in_no_turn_stays_unknown(hunts: Any) -> None:
    hunting = hunts()
    run(hunting, BLIND, EMPTY, BLIND)
    assert "judged in no case: output y" in str(undecided(hunting))


def test_a_turn_that_decides_makes_good_ones_that_did_not(hunts: Any) -> None:
    hunting, codes = hunts(), list[int]()
    for came in (Came(WORDS, reason="nothing was judged"), AGREES):
        hunting.run(Crew(lambda turn, came=came: came), turns=1)
        codes.append(hunting.so_far().exit_code)
    assert codes == [3, 0]


def test_a_turn_that_is_lost_is_not_outvoted(hunts: Any) -> None:
    run(hunts(), AGREES)
    hunting = hunts()
    hunting.lose(Turn(0, How.LOOK, 1, 1))
    assert not hunting.checks[0].known.reach.cases, "what other code got to is worth nothing"
    run(hunting, AGREES, AGREES)
    assert "ended or hung" in str(undecided(hunting)) and hunting.so_far().exit_code == 3
    later = hunts()
    assert "ended or hung" in str(undecided(later)), "a run that draws no case leaves it so"
    run(later, AGREES)
    assert undecided(later) is None


def test_a_saved_case_that_ends_its_process_is_open(hunts: Any) -> None:
    hunting = hunts()
    hunting.lose(Turn(0, How.AGAIN, 1, 1, saved=CASE))
    run(hunting, AGREES)
    assert hunting.so_far().exit_code == 3
    later = hunts()
    assert [saved.case for saved in later.checks[0].again] == [CASE]
    run(later, PASSES, AGREES)
    assert undecided(later) is None


def test_what_could_not_be_made_smaller_decides_nothing(hunts: Any) -> None:
    hunting = hunts()
    hunting.lose(Turn(0, How.SHRINK, 1, 1, saved=CASE))
    run(hunting, AGREES)
    assert undecided(hunting) is None


def test_a_check_of_which_no_case_counts_is_unknown(hunts: Any) -> None:
    hunting = hunts()
    run(hunting, NOTHING, Came())
    assert undecided(hunting) == TF32.reason
    blind = hunts()
    run(blind, PASSES, Came(WORDS), Came())
    assert "nothing was compared" in str(undecided(blind))


@pytest.mark.parametrize("came", [UNCHECKED, ONE_SIDED])
def test_a_case_that_can_not_be_decided_is_not_outvoted(hunts: Any, came: Came) -> None:
    hunting = hunts()
    run(hunting, AGREES, came, AGREES, AGREES)
    assert undecided(hunting) == came.reason and hunting.so_far().exit_code == 3


def test_those_cases_are_run_again_by_the_next_run(
    hunts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Open("late", case=replace(CASE, seed=1))
    run(hunts(), UNCHECKED, drawn(open=[other]), AGREES)
    still = hunts()
    first, second, _ = run(still, NOTHING, PASSES, AGREES)
    assert (first.how, first.saved, second.saved) == (How.AGAIN, CASE, other.case)
    assert first.id == second.id == "" and undecided(still) == TF32.reason
    fixed = hunts()
    monkeypatch.setattr(fixed.corpus, "remove", {}.pop)  # it has no file
    run(fixed, PASSES, AGREES)
    assert undecided(fixed) is None
    assert [turn.how for turn in run(hunts(), AGREES)] == [How.LOOK], "nothing is open"


def test_what_is_met_while_another_is_run_again_stays(hunts: Any) -> None:
    run(hunts(), UNCHECKED)
    hunting, other = hunts(), Open("late", case=replace(CASE, seed=1))
    hunting.note(Turn(0, How.LOOK, 1, 1), drawn(open=[other]))
    run(hunting, PASSES)
    assert undecided(hunting) == "late"


@pytest.mark.parametrize("came", [TROUBLED, Came(), Came(WORDS)])
def test_one_that_does_not_run_again_stays(
    hunts: Any, came: Came, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(hunts(), UNCHECKED)
    hunting = hunts()
    monkeypatch.setattr(hunting.corpus, "set_aside", None)  # it has no file
    run(hunting, came, AGREES)
    assert undecided(hunting) == TF32.reason
    assert told == (["a: the engine is gone"] if came.trouble else [])


def test_one_that_needs_more_ranks_stays(hunts: Any) -> None:
    large = Open("late", case=replace(CASE, mesh={"dp": 2, "tp": 1}))
    run(hunts(), drawn(open=[large]))
    few = hunts()
    assert not few.checks[0].again and undecided(few) == "late"


def test_one_that_the_check_excludes_by_now_is_forgotten(hunts: Any) -> None:
    run(hunts(), drawn(open=[Open("late", case=replace(CASE, mesh={"tp": 2}))]))
    assert undecided(hunts()) is None


def test_what_is_of_no_case_is_open_until_cases_are_drawn_anew(hunts: Any) -> None:
    run(hunts(), ONE_SIDED)
    again = hunts()
    assert undecided(again) == ONE_SIDED.reason
    run(again, AGREES)
    assert undecided(again) is None


def test_a_check_that_fails_is_not_unknown_as_well(hunts: Any) -> None:
    hunting = hunts()
    hunting.checks[0].known.put(finding(shrunk=True))
    run(hunting, UNCHECKED, EMPTY)
    assert undecided(hunting) is None and hunting.so_far().exit_code == 1
    hunting.checks[0].known.findings.clear()
    assert undecided(hunting) == TF32.reason, "and it is once it fails no more"


def test_a_check_that_was_set_aside_is_unknown_whatever_a_last_turn_says(hunts: Any) -> None:
    hunting = hunts()
    for _ in range(LOST):
        hunting.lose(Turn(0, How.LOOK, 1, 1))
    hunting.note(Turn(0, How.LOOK, 1, 1), UNCHECKED)
    assert "set aside" in str(undecided(hunting))
