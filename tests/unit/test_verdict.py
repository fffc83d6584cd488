"""Verdicts: ordered, the worst wins, nothing decided is UNKNOWN; evidence survives JSON."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpcheck.case import Case
from tpcheck.verdict import (
    KINDS,
    CaseResult,
    CheckResult,
    Counterexample,
    Diagnosis,
    Mismatch,
    Verdict,
    worst,
)

PASS, UNKNOWN, FAIL = Verdict.PASS, Verdict.UNKNOWN, Verdict.FAIL
numbers = st.none() | st.floats()
mismatches = st.builds(
    Mismatch,
    tensor=st.text(max_size=8),
    kind=st.sampled_from(KINDS),
    rank=st.integers(0, 63),
    index=st.none() | st.lists(st.integers(0, 99), max_size=4).map(tuple),
    expected=numbers,
    actual=numbers,
    error=numbers,
    bound=numbers,
)


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
    wrong = Mismatch("y", "output", 0)
    assert CaseResult(Case(), "gloo").verdict is PASS
    assert CaseResult(Case(), "gloo", unknown="hung").verdict is UNKNOWN
    assert CaseResult(Case(), "gloo", [wrong], unknown="hung").verdict is FAIL


@settings(deadline=None)
@given(mismatches)
def test_evidence_survives_strict_json_to_the_last_bit(mismatch: Mismatch) -> None:
    data = json.loads(json.dumps(mismatch.to_dict(), allow_nan=False))
    again = Mismatch.from_dict(data)

    assert again.same_as(mismatch)
    for field in ("expected", "actual", "error", "bound"):
        before, after = getattr(mismatch, field), getattr(again, field)
        assert type(before) is type(after)
        assert before == after or (math.isnan(before) and math.isnan(after))
    assert again.index == mismatch.index


@pytest.mark.parametrize(
    "change",
    [
        {"tensor": "z"},
        {"kind": "param"},
        {"rank": 1},
        {"index": (0, 1)},
        {"actual": math.nextafter(2.0, 3.0)},
        {"error": math.nan},
        {"bound": math.inf},
    ],
    ids=lambda change: next(iter(change)),
)
def test_evidence_that_differs_anywhere_is_not_the_same(change: dict[str, object]) -> None:
    one = Mismatch("y", "output", 0, (0, 0), 1.0, 2.0, 1.0, 0.1)
    assert one.same_as(replace(one, detail={"wrong": 3}))
    assert not one.same_as(replace(one, **change))  # type: ignore[arg-type]


def test_non_finite_numbers_are_made_text_at_any_depth() -> None:
    detail = {"norm_error": math.inf, "list": [math.nan, {"x": -math.inf}]}
    data = Mismatch("y", "output", 0, detail=detail).to_dict()["detail"]
    assert data == {"norm_error": "inf", "list": ["nan", {"x": "-inf"}]}


def test_a_check_result_holds_the_keys_of_the_contract() -> None:
    example = Counterexample(
        id="7f3a91",
        case=Case(),
        mismatches=[Mismatch("y", "output", 1, (0,), 1.0, math.nan, math.nan, 1e-15)],
        diagnosis=Diagnosis("summed-twice", "twice", {"factor": math.inf}),
        engine="gloo",
        first_divergence="y (forward)",
        reproduce="tpcheck replay 7f3a91",
    )
    data = CheckResult("row", FAIL, "gloo", counterexample=example).to_dict()

    assert set(data) >= {
        "name", "verdict", "engine", "examples", "seconds", "dtypes", "tp_degrees",
        "counterexample",
    }  # fmt: skip
    assert set(data["counterexample"]) >= {
        "id", "case", "mismatches", "diagnosis", "first_divergence", "reproduce"
    }  # fmt: skip
    assert set(data["counterexample"]["mismatches"][0]) >= {
        "tensor", "kind", "rank", "index", "expected", "actual", "error", "bound"
    }  # fmt: skip
    assert set(data["counterexample"]["diagnosis"]) == {"code", "message", "evidence"}
    json.dumps(data, allow_nan=False)


def test_without_a_counterexample_there_is_null() -> None:
    assert CheckResult("row", PASS, "gloo").to_dict()["counterexample"] is None
