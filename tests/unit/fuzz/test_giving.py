"""Which turn is given next, of checks that are not run."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any

import torch

from tests.unit.fuzz.findings import finding
from tpcheck import Argument, Case, kernel_check
from tpcheck.fuzz.giving import FEWEST, FIRST, MOST, SHRINKING, Giving
from tpcheck.fuzz.known import Known
from tpcheck.fuzz.shelf import Parent
from tpcheck.fuzz.standing import LOST, Saved, Standing
from tpcheck.fuzz.turn import How, Subject, Turn


def check(name: str) -> Any:
    return kernel_check(torch.neg, reference=torch.neg, arguments={"x": Argument("n")}, name=name)


def standings(*names: str) -> list[Standing]:
    return [Standing(Subject(f"a.py::{name}", check(name)), Known()) for name in names]


def giving(
    checks: list[Standing], *, turns: int | None = None, until: float | None = None
) -> Giving:
    return Giving(checks, 0, until=until, turns=turns)


def ended(of: Giving, turn: Turn, seconds: float = 1.0, cases: int = 10) -> None:
    """A turn has been taken, and showed nothing new."""
    standing = of.checks[turn.check]
    standing.known.add(1, [{"x", "seen x"}] * cases, seconds, 0.0)
    if turn.how in standing.arms:
        standing.arms[turn.how].add(0, seconds)
    of.ended(turn, seconds)


def taken(of: Giving, count: int) -> list[Turn]:
    turns: list[Turn] = []
    while len(turns) < count and (turn := of.next()) is not None:
        ended(of, turn)
        turns.append(turn)
    return turns


def test_every_check_has_its_first_turn_before_any_has_a_second() -> None:
    turns = taken(giving(standings("a", "b", "c")), 6)
    assert [turn.check for turn in turns[:3]] == [0, 1, 2]
    assert {turn.cases for turn in turns[:3]} == {FIRST}
    assert all(turn.how is How.LOOK for turn in turns), "nothing to look near to"


def test_each_turn_draws_other_cases_and_a_run_the_same_ones_again() -> None:
    seeds = [turn.seed for turn in taken(giving(standings("a", "b")), 20)]
    assert len(set(seeds)) == 20
    assert seeds == [turn.seed for turn in taken(giving(standings("a", "b")), 20)]


def test_what_shows_much_has_more_turns() -> None:
    of = giving(standings("rich", *"abcde"))
    often: Counter[int] = Counter()
    for _ in range(200):
        turn = of.next()
        assert turn is not None
        ended(of, turn)
        of.checks[0].arms[How.LOOK].news = 30.0
        often[turn.check] += 1
    assert often[0] > 2 * often[1] > 0


def test_what_was_looked_through_least_has_every_second_turn() -> None:
    """Of one that is slow and shows little, next to twenty that show more."""
    checks = standings(*(f"n{number}" for number in range(20)), "slow")
    of = giving(checks)
    taken(of, 21)
    for standing in checks[:20]:
        standing.arms[How.LOOK].news = 300.0
        standing.known.seconds = 5000.0
    turns = taken(of, 20)
    assert sum(turn.check == 20 for turn in turns) == 10


def test_what_takes_long_has_more_time_and_fewer_cases() -> None:
    """By cases alone it would have all of the time, by time alone next to none of the cases."""
    checks = standings("quick", "slow")
    of = giving(checks)
    for _ in range(400):
        turn = of.next()
        assert turn is not None
        ended(of, turn, *((3.0, 50), (5.0, 5))[turn.check])
    quick, slow = (standing.known for standing in checks)
    assert 2 * quick.seconds < slow.seconds and 2 * slow.cases < quick.cases


def test_all_is_looked_at_in_the_first_turn_of_a_run_and_cases_are_spared_then() -> None:
    checks = standings("a", "b")
    checks[1].known.add(1, [{"x"}] * 10, 1.0, 0.0)  # by an earlier run, perhaps of other code
    checks[1].again = deque([Saved("1", Case(mesh={"tp": 1}))])
    turns = taken(giving(checks), 8)
    assert turns[0].how is How.AGAIN and turns[0].sparing is None
    for number in range(2):
        sparing = [turn.sparing for turn in turns[1:] if turn.check == number]
        before = 20 * number  # each turn has ten cases, an earlier one and the saved one, too
        assert len(sparing) > 1 and sparing == [
            None,
            *(before + 10 * n for n in range(1, len(sparing))),
        ]


def test_two_workers_are_not_given_the_same_check() -> None:
    of = giving(standings("a", "b"))
    taken(of, 2)
    both = [of.next() for _ in range(4)]
    assert {turn.check for turn in both if turn is not None} == {0, 1}


def test_a_check_with_a_finding_has_few_turns_and_not_for_the_same() -> None:
    checks = standings("wrong", "unknown")
    checks[0].known.put(finding(shrunk=True))
    turns = taken(giving(checks), 200)
    often = Counter(turn.check for turn in turns)
    assert often[1] > 4 * often[0] > 0
    assert all(turn.told == {"race kernel:7"} for turn in turns if turn.check == 0)


def test_saved_cases_come_first_and_those_whose_file_is_gone_are_looked_at_anew() -> None:
    checks = standings("a", "b")
    checks[1].known.put(finding(shrunk=True))
    here = Saved("1", Case(mesh={"tp": 1}))
    gone = Saved("2", Case(mesh={"tp": 1}, seed=2), frozenset({"race kernel:7"}))
    checks[1].again = deque([here, gone])
    first, second, third = taken(giving(checks), 3)
    assert [first.how, second.how, third.how] == [How.AGAIN, How.AGAIN, How.LOOK]
    assert first.told == {"race kernel:7"} and second.told == frozenset()


def test_findings_are_made_smaller_in_a_share_of_the_time_one_after_the_other() -> None:
    checks = standings("a", "b", "c")
    for n, standing in enumerate(checks):
        standing.known.put(finding(id=str(n), code=f"c{n}", shrunk=False))
    turns = taken(giving(checks), 60)
    assert [turn.how for turn in turns[:3]] == [How.LOOK] * 3
    shrinking = [turn for turn in turns if turn.how is How.SHRINK]
    assert 0 < len(shrinking) / len(turns) <= SHRINKING + 0.05
    assert shrinking[0].told == frozenset(), "its own failure is what is to be seen"


def test_after_the_last_turn_all_findings_are_made_smaller() -> None:
    checks = standings("a", "b")
    of = giving(checks, turns=2)
    for _ in range(2):
        turn = of.next()
        assert turn is not None and turn.how is How.LOOK
        ended(of, turn)
        checks[turn.check].known.put(finding(id=str(turn.check)))
    for number in range(2):
        turn = of.next()
        assert turn is not None and turn.how is How.SHRINK and of.next() is None, "one at a time"
        checks[number].known.findings = [finding(shrunk=True)]
        ended(of, turn)
    assert of.next() is None


def test_time_that_is_up_gives_no_turn() -> None:
    assert giving(standings("a"), until=time.monotonic() - 1).next() is None
    assert giving(standings("a"), until=time.monotonic() + 60).next() is not None


def test_what_can_not_run_has_no_more_turns() -> None:
    checks = standings("exhausted", "troubled", "lost", "right")
    checks[0].exhausted, checks[1].troubled, checks[2].lost = True, "it raises", LOST
    assert {turn.check for turn in taken(giving(checks), 9)} == {3}
    checks[3].exhausted = True
    assert giving(checks).next() is None


def test_near_cases_are_drawn_where_there_are_some_to_be_near_to() -> None:
    checks = standings("a")
    parents = [Parent(b"one", frozenset({"seen a"})), Parent(b"two")]
    checks[0].parents = {1: parents}
    turns = [turn for turn in taken(giving(checks), 30) if turn.how is How.NEAR]
    assert len(turns) == 15
    assert {(turn.degree, turn.parents) for turn in turns} == {(1, (*parents,))}


def test_both_ways_to_look_have_half_of_the_time_however_long_their_turns_are() -> None:
    for long in How.LOOK, How.NEAR:
        (standing,) = checks = standings("a")
        standing.parents = {1: [Parent(b"one", frozenset({"seen a"}))]}
        of = giving(checks)
        for _ in range(400):
            turn = of.next()
            assert turn is not None
            ended(of, turn, 3.0 if turn.how is long else 1.0)
        spent = [standing.arms[how].spent for how in (How.LOOK, How.NEAR)]
        assert max(spent) - min(spent) <= 3.0


def test_near_what_many_cases_show_nothing_is_drawn() -> None:
    (standing,) = checks = standings("a")
    standing.parents = {1: [Parent(b"one", frozenset({"seen x"})), Parent(b"two")]}
    turns = taken(giving(checks), 20)
    assert all(turn.how is How.LOOK for turn in turns), "all cases show it, or nothing is known"


def test_a_turn_has_a_case_of_each_degree_however_long_they_take() -> None:
    (standing,) = checks = standings("a")
    standing.degrees = {*range(1, MOST + 2)}
    of = giving(checks)
    for _ in range(2):
        turn = of.next()
        assert turn is not None and turn.cases == MOST + 1
        ended(of, turn, 1000.0)


def test_a_turn_is_as_long_as_cases_take() -> None:
    for seconds, cases in ((100.0, FEWEST), (0.001, MOST)):
        of = giving(standings("a"))
        first = of.next()
        assert first is not None
        ended(of, first, seconds)
        second = of.next()
        assert second is not None and second.cases == cases
