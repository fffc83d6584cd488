"""The hunt without ranks: what shrinking may cost, in cases and never in seconds."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tests import candidates
from tpcheck import Case, strategies
from tpcheck.evidence import Stuck
from tpcheck.search.hunt import IN_VAIN, Hunt
from tpcheck.search.options import Options
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Impasse, Kind

WRONG = Mismatch("y", Kind.OUTPUT, 0, (0,), 1.0, 2.0, 1.0, 0.5)


def hang(why: Impasse) -> Mismatch:
    return Mismatch("rank", Kind.HANG, 0, detail=Stuck(why))


class FakeTrials:
    """Cases that fail where `wrong` says so, and how often each ran."""

    def __init__(self, wrong: Callable[[Case], Mismatch | None]) -> None:
        self.wrong = wrong
        self.results: dict[str, CaseResult] = {}
        self.failed_at: int | None = None

    def result(self, case: Case) -> CaseResult | None:
        return self.results.get(case.canonical())

    def run(self, case: Case, then: Case | None = None) -> CaseResult:
        found = self.wrong(case)
        result = CaseResult(case, "gloo", [found] if found else [])
        self.results[case.canonical()] = result
        if found and self.failed_at is None:
            self.failed_at = len(self.results)
        return result

    def fails(self, result: CaseResult) -> bool:
        return bool(result.mismatches)


def hunt(
    wrong: Callable[[Case], Mismatch | None], *, deadline: float | None = None, **options: Any
) -> tuple[CaseResult | None, int]:
    """What a hunt through numbers up to a million finds, and how many cases ran after it."""
    numbers = {"a": st.integers(0, 10**6), "b": st.integers(0, 10**6)}
    check = replace(
        candidates.check(candidates.Row),
        overrides={"cases": lambda space: strategies.cases(space, numbers)},
    )
    trials: Any = FakeTrials(wrong)
    given = Options(examples=20, degrees=(2,), corpus=None, **options)
    found = Hunt(check, 4, given, trials, lambda result: None).run(deadline)
    return found, len(trials.results) - (trials.failed_at or 0)


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
