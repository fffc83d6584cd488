"""Cases whose rows are gigabytes apart, of functions that fill what lies between them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck import Case
from tpcheck.evidence import Died, Evidence, Raised, Scene, Stuck, Values
from tpcheck.search.apart import FILLED, filled, near
from tpcheck.search.outcome import not_apart
from tpcheck.search.trials import Trials
from tpcheck.verdict import CaseResult, Mismatch, Verdict
from tpcheck.vocabulary import Impasse, Kind

FAR = Case({"rows": 3}, memory="giant")
FULL = Stuck(Impasse.TOO_LONG, seconds=30.0, held=FILLED)
HANG = (Kind.HANG, FULL)
WRONG = (Kind.OUTPUT, Values(wrong=1, of=4))


def result(case: Case, *found: tuple[Kind, Evidence]) -> CaseResult:
    return CaseResult(case, "gloo", [Mismatch("y", kind, 0, detail=e) for kind, e in found])


@pytest.mark.parametrize(
    ("memory", "found", "by_memory"),
    [
        ("giant", [HANG], True),
        ("mixed", [HANG], True),
        ("giant", [HANG, (Kind.EXCEPTION, Raised("E", "", Scene(consequence=True)))], True),
        ("giant", [(Kind.CRASH, Died(-9))], True),
        ("giant", [(Kind.EXCEPTION, Raised("RuntimeError", "no memory", starved=True))], True),
        ("giant", [(Kind.EXCEPTION, Raised("RuntimeError", "no memory"))], False),
        ("padded", [HANG], False),
        ("giant", [(Kind.HANG, replace(FULL, held=FILLED - 1))], False),
        ("giant", [(Kind.HANG, replace(FULL, held=None))], False),
        ("giant", [(Kind.HANG, replace(FULL, why=Impasse.EVERY_RANK_WAITS))], False),
        ("giant", [(Kind.CRASH, Died(-11))], False),
        ("giant", [(Kind.CRASH, Died(None))], False),
        ("giant", [HANG, WRONG], False),
        ("giant", [WRONG], False),
        ("giant", [], False),
    ],
)
def test_that_is_told_by_what_a_rank_held(
    memory: str, found: list[tuple[Kind, Evidence]], by_memory: bool
) -> None:
    assert filled(result(replace(FAR, memory=memory), *found)) is by_memory


def test_the_same_numbers_are_then_one_behind_the_other() -> None:
    ran: list[Case] = []

    def run(case: Case, **_: object) -> CaseResult:
        ran.append(case)
        return result(case, *[HANG] * (case.memory == "giant"))

    of = trials(run)
    found = of.run(FAR)
    assert found.verdict is Verdict.PASS and found.case == near(FAR) != FAR
    assert ran == [FAR, near(FAR)] and of.result(FAR) is of.result(near(FAR)) is not None
    assert of.run(replace(FAR, seed=1, memory="mixed")).case.memory == "contiguous"
    assert of.run(replace(FAR, seed=2, memory="padded")).case.memory == "padded"
    assert len(ran) == 4
    (line,) = not_apart(of)
    assert FAR.describe() in line


def test_one_that_raises_for_want_of_memory_is_tried_again_with_fewer_rows() -> None:
    starved = (Kind.EXCEPTION, Raised("RuntimeError", "no memory", starved=True))
    ran: list[Case] = []

    def run(case: Case, **_: object) -> CaseResult:
        ran.append(case)
        return result(case, *[starved] * (case.memory == "giant" and case["rows"] > 2))

    of, few = trials(run), replace(FAR, dims={"rows": 2})
    assert of.run(FAR).verdict is Verdict.PASS and of.result(FAR) is not None
    assert of.run(FAR) is of.result(near(FAR)) and ran == [FAR, near(FAR)]
    assert of.run(few).case == few and not_apart(of)


def test_what_is_wrong_without_gaps_is_wrong() -> None:
    def run(case: Case, **_: object) -> CaseResult:
        return result(case, HANG if case.memory == "giant" else WRONG)

    found = trials(run).run(FAR)
    assert found.verdict is Verdict.FAIL and found.case == near(FAR)


def test_a_failure_that_is_made_smaller_stays_apart() -> None:
    def run(case: Case, **_: object) -> CaseResult:
        return result(case, HANG if case.gradients == "all" else WRONG)

    of = trials(run)
    assert of.run(replace(FAR, gradients="some"), closely=False).case.memory == "giant"
    assert of.run(FAR, closely=False).timed_out and not not_apart(of)
    again = of.run(replace(FAR, gradients="some", seed=1), closely=False)
    assert again.case.memory == "giant"


def trials(run: Any) -> Trials:
    """On ranks that are not there."""
    engine = SimpleNamespace(ran=0, starts=0)
    runner: Any = SimpleNamespace(engine=engine, branches=False, again=True, run=run)
    return Trials(runner, [])
