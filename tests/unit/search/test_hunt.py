"""The hunt without ranks: what shrinking may cost, in cases and never in seconds."""

from __future__ import annotations

import itertools
import time
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tests import candidates
from tpcheck import Case, Check, KnownFinding, strategies
from tpcheck.evidence import Stuck
from tpcheck.search.hunt import IN_VAIN, Hunt
from tpcheck.search.options import Options
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Impasse, Kind

NUMBERS = {"a": st.integers(0, 10**6), "b": st.integers(0, 10**6)}
NUMBERED = replace(
    candidates.check(candidates.Row),
    overrides={"cases": lambda space: strategies.cases(space, NUMBERS), "modes": ()},
)
WRONG = Mismatch("y", Kind.OUTPUT, 0, (0,), 1.0, 2.0, 1.0, 0.5)


def hang(why: Impasse) -> Mismatch:
    return Mismatch("rank", Kind.HANG, 0, detail=Stuck(why))


class FakeTrials:
    """Cases that fail where `wrong` says so, and which were judged closely; those that `suspect`
    names are taken for wrong where they are not."""

    def __init__(
        self,
        wrong: Callable[[Case], Mismatch | None],
        suspect: Callable[[Case], bool] = lambda _: False,
    ) -> None:
        self.wrong, self.suspect = wrong, suspect
        self.closely: list[Case] = []
        self.results: dict[str, CaseResult] = {}
        self.failed_at: int | None = None
        self.ended: list[CaseResult] = []

    def end_with(self, failed: CaseResult) -> None:
        self.ended.append(failed)

    def result(self, case: Case) -> CaseResult | None:
        return self.results.get(case.canonical())

    def run(self, case: Case, then: Case | None = None, *, closely: bool = True) -> CaseResult:
        found = self.wrong(case)
        if closely:
            self.closely.append(case)
        suspected = not closely and (found is not None or self.suspect(case))
        found = found or (WRONG if suspected else None)
        result = CaseResult(case, "gloo", [found] if found else [], suspected=suspected)
        self.results[case.canonical()] = result
        if found and self.failed_at is None:
            self.failed_at = len(self.results)
        return result

    def fails(self, result: CaseResult) -> bool:
        return bool(result.mismatches)


def hunt(
    wrong: Callable[[Case], Mismatch | None], *, deadline: float | None = None, **options: Any
) -> tuple[CaseResult | None, int]:
    """What a hunt finds, and how many cases ran after it."""
    trials = FakeTrials(wrong)
    found = of_numbers(trials, deadline=deadline, **options)
    return found, len(trials.results) - (trials.failed_at or 0)


def of_numbers(
    trials: Any, check: Check = NUMBERED, *, deadline: float | None = None, **options: Any
) -> CaseResult | None:
    """What a hunt through numbers up to a million finds."""
    given = Options(**{"examples": 20, "degrees": (2,), "corpus": None, **options})
    return Hunt(check, 4, given, trials, lambda result: None).run(deadline)


def both_large(case: Case) -> Mismatch | None:
    return WRONG if case["a"] > 1000 and case["b"] > 17 else None


def test_a_failure_is_as_small_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    calm, after = hunt(both_large)
    assert calm is not None and (calm.case["a"], calm.case["b"]) == (1001, 18)
    looks = itertools.count()  # each look at the clock takes an hour
    clock = types.SimpleNamespace(monotonic=lambda: next(looks) * 3600.0)
    monkeypatch.setattr("tpcheck.search.hunt.time", clock)
    racing, again = hunt(both_large)
    assert racing is not None and (racing.case, again) == (calm.case, after)


@pytest.mark.parametrize(("left", "ran"), [(60.0, 1), (-1.0, 0)])
def test_a_share_that_is_up_is_passed_for_a_first_case_while_there_is_time(
    left: float, ran: int
) -> None:
    trials, now = FakeTrials(lambda case: None), time.monotonic()
    options = Options(examples=20, degrees=(2, 4), corpus=None, end=now + left)
    of_check = Hunt(NUMBERED, 4, options, trials, lambda result: None)  # type: ignore[arg-type]
    assert of_check.run(now - 1.0) is None
    assert (len(trials.results), of_check.cut) == (ran, True)


def test_the_first_case_of_a_share_that_is_up_may_fail() -> None:
    now = time.monotonic()
    found, after = hunt(lambda case: WRONG, deadline=now, end=now + 60.0, shrink_cases=0)
    assert found is not None and after == 0


def test_while_it_shrinks_cases_are_not_judged_closely_and_the_smallest_is() -> None:
    trials = FakeTrials(both_large)
    found = of_numbers(trials)
    assert found is not None and not found.suspected
    assert trials.failed_at and trials.closely[trials.failed_at :] == [found.case]
    assert any(result.suspected for result in trials.results.values())
    assert [result.case for result in trials.ended] == [trials.closely[trials.failed_at - 1]]


def test_suspects_that_are_right_after_all_are_not_told() -> None:
    trials = FakeTrials(both_large, suspect=lambda case: case["b"] > 17)
    found = of_numbers(trials)
    cleared = [case for case in trials.closely[trials.failed_at :] if not both_large(case)]
    assert cleared and found is not None and both_large(found.case) and not found.suspected


def test_of_a_check_with_known_findings_every_failure_is_judged_closely() -> None:
    trials = FakeTrials(both_large)
    finding = KnownFinding("torch", "<1", "wrong-group", Case({"a": 1, "b": 1}), "a page")
    assert of_numbers(trials, replace(NUMBERED, known=(finding,))) is not None
    assert not any(result.suspected for result in trials.results.values())


@pytest.mark.parametrize(
    ("most", "ran"),
    [
        ({2: 99, 3: 0, 4: 99}, {2: 10, 4: 10}),
        ({2: 99, 3: 2, 4: 99}, {2: 9, 3: 2, 4: 9}),
        ({2: 0, 3: 0, 4: 99}, {4: 20}),
        ({2: 3, 3: 1, 4: 0}, {2: 3, 3: 1}),
    ],
    ids=str,
)
def test_what_a_degree_has_no_cases_for_goes_to_the_others(
    most: dict[int, int], ran: dict[int, int]
) -> None:
    def cases(space: Any) -> Any:
        (degree,) = space.degrees
        few = [Case(dims={"a": n}, mesh={"tp": degree}) for n in range(most[degree])]
        return st.sampled_from(few) if few else st.nothing()

    trials: Any = FakeTrials(lambda case: None)
    check = replace(NUMBERED, overrides={"cases": cases, "linear": False})
    assert of_numbers(trials, check, degrees=(2, 3, 4)) is None
    assert Counter(result.case.tp for result in trials.results.values()) == ran


@pytest.mark.parametrize("cases", [0, 1, 7])
def test_shrinking_ends_with_the_cases_that_it_may_cost(cases: int) -> None:
    found, after = hunt(both_large, shrink_cases=cases)
    assert found is not None and after == cases


def test_a_slow_failure_is_shrunk_in_fewer_cases() -> None:
    def after(why: Impasse | None) -> int:
        wrong = WRONG if why is None else hang(why)
        return hunt(lambda case: wrong if both_large(case) else None, shrink_cases=100)[1]

    assert after(None) > after(Impasse.EVERY_RANK_WAITS) > after(Impasse.TOO_LONG)


def test_shrinking_ends_once_nothing_makes_it_smaller() -> None:
    only: list[Case] = []

    def fails(case: Case) -> Mismatch | None:
        if not only and case["a"] > 1000 and case["b"] > 1000:
            only.append(case)
        return WRONG if case in only else None

    found, after = hunt(fails, shrink_cases=1000)
    assert found is not None and [found.case] == only and after == IN_VAIN


@pytest.mark.parametrize(("lower_cases", "degree"), [(50, 2), (0, 4)])
def test_a_failure_is_looked_for_at_lower_degrees_in_as_many_cases_as_are_asked(
    lower_cases: int, degree: int
) -> None:
    """At tp=2 it shows in few of the numbers; the first ten are none of them."""
    seen: list[int] = []

    def wrong(case: Case) -> Mismatch | None:
        seen.append(case.tp)
        many = seen.count(2) > 10 and case["a"] > 17
        return WRONG if case.tp == 4 or many else None

    trials = FakeTrials(wrong)
    found = of_numbers(trials, degrees=(2, 4), lower_cases=lower_cases)
    assert found is not None and found.case.tp == degree
    assert (seen.count(2) > 10) is (lower_cases > 0)
