"""What a turn asks of its search, and what it keeps of the cases that ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tpcheck import Argument, Case, kernel_check
from tpcheck.evidence.judged import Judged
from tpcheck.fuzz import turn as room
from tpcheck.fuzz.near import Again, Near
from tpcheck.fuzz.novel import Looking
from tpcheck.fuzz.shelf import Parent, Shelf
from tpcheck.fuzz.turn import CLIMBS, SENT, Came, How, Subject, Turn, Turns
from tpcheck.search.corpus import Corpus
from tpcheck.search.ledger import Ledger
from tpcheck.search.options import Options
from tpcheck.search.reach import Open, Reach
from tpcheck.verdict import CaseResult, CheckResult, Mismatch, Verdict
from tpcheck.vocabulary import Kind

CHECK = kernel_check(torch.neg, reference=torch.neg, arguments={"x": Argument("n")}, name="neg")
SUBJECT = Subject("a.py::neg", CHECK)


def turns(place: Path) -> Turns:
    return Turns([SUBJECT], Options(), Corpus(place / "corpus"), place / "choices")


@pytest.mark.parametrize("how", How)
def test_branches_are_noted_where_it_looks_for_something_new(tmp_path: Path, how: How) -> None:
    options = turns(tmp_path)._options(Turn(0, how, 5, 1))
    assert options.branches is (how in (How.LOOK, How.NEAR))
    assert bool(options.shrink_cases) is (how is How.SHRINK)


def test_a_turn_says_whether_its_cases_are_spared(tmp_path: Path) -> None:
    for sparing in (None, 10):
        turn = Turn(0, How.LOOK, 5, 1, sparing=sparing)
        assert turns(tmp_path)._options(turn).sparing == sparing


def test_one_of_so_many_turns_near_others_climbs(tmp_path: Path) -> None:
    of, shelf = turns(tmp_path), Shelf(tmp_path / "choices")
    hunts: list[Any] = [
        of._kind(Turn(0, How.NEAR, 5, seed), SUBJECT, shelf) for seed in range(2 * CLIMBS)
    ]
    assert all(hunt.func is Near for hunt in hunts)
    assert sum(hunt.args[0].climbs for hunt in hunts) == 2
    made = [hunt.args[0].made for hunt in hunts]
    assert all(one is made[0] for one in made), "the children of all turns count"
    look: Any = of._kind(Turn(0, How.LOOK, 5, 1), SUBJECT, shelf)
    assert look.func is Looking


RAISES = Case(seed=9)
WRONG = [Mismatch("output", Kind.OUTPUT, 0)]


class Hunted:
    impossible = frozenset({8})

    def __init__(self, *known: Case) -> None:
        ledger = Ledger([], _explained={case.canonical() for case in known})
        self.trials = SimpleNamespace(ledger=ledger, at=RAISES)

    def choices(self, case: Case) -> bytes:
        return str(case.seed).encode()


def test_cases_are_kept_whose_way_few_took_and_which_did_not_fail() -> None:
    def ran(seed: int, *ways: str, wrong: bool = False) -> CaseResult:
        mismatches = [Mismatch("output", Kind.OUTPUT, 0)] * wrong
        return CaseResult(Case(seed=seed), "gloo", ways={*ways}, mismatches=mismatches)

    seen = {"seen branch often": SENT, "seen branch twice": 2}
    given = Turn(0, How.LOOK, 5, 1, seen=seen)
    cases = [
        ran(1, "branch often"),
        ran(2, "branch twice", "branch often", "mask k:1 all"),
        ran(3, "branch new"),
        ran(4),
        ran(5, "branch new", wrong=True),
    ]
    result = CheckResult("neg", Verdict.PASS, "gloo")
    hunts: Any = [Hunted()]
    came = room._came(given, SUBJECT, cases, result, hunts)
    twice = frozenset({"seen branch twice", "seen branch often"})
    assert came.worth == [
        (2, Parent(b"2", twice)),
        (2, Parent(b"3", frozenset({"seen branch new"}))),
    ]


YES = {(Kind.OUTPUT, "y"): Judged(4, 4, 1, 1)}


def came(*ran: CaseResult, how: How = How.LOOK, known: Sequence[Case] = (), **result: Any) -> Came:
    """What a turn comes to whose check is UNKNOWN."""
    hunts: Any = [Hunted(*known)]
    of = CheckResult("neg", Verdict.UNKNOWN, "gloo", judged=YES, **result)
    return room._came(Turn(0, how, 5, 1), SUBJECT, ran, of, hunts)


TF32 = "not checked: tf32"


def test_what_cases_got_to_is_told_and_not_those_in_which_nothing_was_judged() -> None:
    blind = {(Kind.OUTPUT, "y"): Judged(4, 0, 1, 0)}
    empty = CaseResult(Case(mesh={"tp": 4}), "gloo", unknown="none was judged", judged=blind)
    agrees = CaseResult(Case(), "gloo", judged=YES)
    wrong = CaseResult(Case(mesh={"tp": 16}), "gloo", WRONG, judged=YES)
    as_known = CaseResult(Case(mesh={"tp": 32}), "gloo", WRONG, judged=YES)
    about: dict[str, Any] = {"reason": "tp=4 did not run", "more": True, "known": [as_known.case]}
    told = came(empty, agrees, wrong, as_known, **about)
    assert told.reach == Reach(2, frozenset({2, 32}), frozenset({8}), YES)
    assert (told.reason, told.open) == ("tp=4 did not run", [])


@pytest.mark.parametrize("how", [How.LOOK, How.NEAR, How.AGAIN])
@pytest.mark.parametrize("trouble", [False, True])
def test_cases_that_can_not_be_decided_are_told(how: How, trouble: bool) -> None:
    agrees = CaseResult(Case(seed=1), "gloo", judged=YES)
    wrong = CaseResult(Case(seed=4), "gloo", WRONG, judged=YES)
    unchecked = [CaseResult(Case(seed=seed), "gloo", unknown=TF32) for seed in (2, 3)]
    told = came(agrees, *unchecked, wrong, how=how, reason="trouble", trouble=trouble)
    left = [Open(TF32, case=Case(seed=seed)) for seed in (2, 3)]
    raises = [Open("trouble", case=RAISES)] if how is not How.AGAIN else []
    assert told.open == [*left, *(raises if trouble else [Open("trouble")])]


def test_a_saved_case_that_is_none_of_its_check_any_more_is_told() -> None:
    again = object.__new__(Again)
    vars(again).update(stale="no dim", trials=Hunted().trials, drawn=None, impossible=set())
    of = CheckResult("neg", Verdict.UNKNOWN, "gloo")
    told = room._came(Turn(0, How.AGAIN, 1, 1, saved=Case()), SUBJECT, [], of, [again])
    assert (told.stale, told.saved, told.open) == ("no dim", None, [])


def test_what_real_ranks_can_not_decide_is_of_a_case() -> None:
    agrees = CaseResult(Case(seed=1), "threads", judged=YES)
    told = came(agrees, reason="build has no end", about=Case(seed=1))
    assert told.open == [Open("build has no end", case=Case(seed=1))]


def test_a_turn_without_a_case_says_nothing() -> None:
    told = came(reason="the time was up", more=True)
    assert told.reason is None and told.reach.cases == 0 and not told.open
