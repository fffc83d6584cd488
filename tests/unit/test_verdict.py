"""Verdicts: ordered, the worst wins, nothing decided is UNKNOWN."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import Values
from tpcheck.failed import CheckFailed, CheckTroubled
from tpcheck.verdict import (
    CaseResult,
    CheckResult,
    Mismatch,
    Verdict,
    exit_code,
    worst,
)
from tpcheck.vocabulary import Kind

PASS, UNKNOWN, FAIL = Verdict.PASS, Verdict.UNKNOWN, Verdict.FAIL


def test_the_order_is_pass_unknown_fail() -> None:
    assert sorted([FAIL, PASS, UNKNOWN]) == [PASS, UNKNOWN, FAIL]
    assert PASS < UNKNOWN < FAIL and FAIL >= UNKNOWN and not PASS > PASS


@pytest.mark.parametrize("verdicts", list(itertools.product(Verdict, repeat=3)))
def test_the_worst_wins_in_any_order(verdicts: tuple[Verdict, ...]) -> None:
    rank = [PASS, UNKNOWN, FAIL]
    assert worst(verdicts) is rank[max(rank.index(v) for v in verdicts)]


def test_of_no_verdicts_the_worst_is_unknown_not_pass() -> None:
    assert worst([]) is UNKNOWN


def test_exit_codes_are_the_contract() -> None:
    assert {v.value: v.exit_code for v in Verdict} == {"PASS": 0, "FAIL": 1, "UNKNOWN": 3}


def test_a_mismatch_outweighs_an_unknown_and_an_unknown_a_pass() -> None:
    wrong = Mismatch("y", Kind.OUTPUT, 0)
    assert CaseResult(Case(), "gloo").verdict is PASS
    assert CaseResult(Case(), "gloo", unknown="hung").verdict is UNKNOWN
    assert CaseResult(Case(), "gloo", [wrong], unknown="hung").verdict is FAIL


@pytest.mark.parametrize(
    "change",
    [
        {"tensor": "z"},
        {"kind": Kind.PARAM},
        {"rank": 1},
        {"index": (0, 1)},
        {"actual": math.nextafter(2.0, 3.0)},
        {"error": math.nan},
        {"bound": math.inf},
    ],
    ids=lambda change: next(iter(change)),
)
def test_evidence_that_differs_anywhere_is_not_the_same(change: dict[str, object]) -> None:
    one = Mismatch("y", Kind.OUTPUT, 0, (0, 0), 1.0, 2.0, 1.0, 0.1)
    assert one.same_as(replace(one, detail=Values(3, 4)))
    assert not one.same_as(replace(one, **change))  # type: ignore[arg-type]


RIGHT = CheckResult("a", PASS, "gloo")
WRONG = replace(RIGHT, verdict=FAIL)
LATE = replace(RIGHT, verdict=UNKNOWN)
TROUBLED = replace(LATE, trouble=True)
FAILED_BEFORE = replace(WRONG, trouble=True)


@pytest.mark.parametrize(
    ("results", "undecided", "code"),
    [
        ([RIGHT], False, 0),
        ([RIGHT], True, 3),
        ([], False, 3),
        ([RIGHT, LATE], False, 3),
        ([RIGHT, TROUBLED, LATE], True, 2),
        ([TROUBLED, WRONG], True, 1),
        ([FAILED_BEFORE], False, 1),
        ([FAILED_BEFORE, TROUBLED], False, 1),
    ],
)
def test_the_exit_code_says_fail_then_trouble_then_unknown(
    results: list[CheckResult], undecided: bool, code: int
) -> None:
    assert exit_code(results, undecided=undecided) == code


def test_a_check_that_can_not_run_is_a_failed_check_and_the_users_mistake() -> None:
    error = CheckTroubled("report", [TROUBLED])
    assert isinstance(error, CheckFailed) and isinstance(error, InvalidArgument)
    assert str(error) == "report" and error.results == [TROUBLED]


def test_a_failure_of_training_shows_in_the_steps_up_to_the_first_wrong_one() -> None:
    def of(*wrong: tuple[str, Kind]) -> CaseResult:
        return CaseResult(Case(), "gloo", [Mismatch(name, kind, 0) for name, kind in wrong])

    assert of(("w@step3", Kind.PARAM_GRAD), ("w@step2", Kind.PARAM)).steps == 2
    assert of(("y", Kind.OUTPUT), ("w@step2", Kind.PARAM)).steps == 1
    assert of(("mask0@step4.1", Kind.MASK)).steps == 4
    assert of(("rank", Kind.EXCEPTION), ("w@step2", Kind.PARAM)).steps is None, "at any step"
