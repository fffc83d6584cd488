"""What a run of `fuzz` comes to: its verdict, its exit code, and the chance of something new."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.fuzz.findings import finding
from tpcheck.figures.hunted import Finding, Hunted, Row
from tpcheck.verdict import Verdict


def row(**changes: Any) -> Row:
    return Row(**{"check": "a.py::a", "title": "a", "cases": 10, "lone": 2, **changes})


@pytest.mark.parametrize(
    ("rows", "findings", "reason", "verdict", "code"),
    [
        ([row()], [], None, Verdict.PASS, 0),
        ([row()], [finding()], None, Verdict.FAIL, 1),
        ([row(troubled="it raises")], [finding()], None, Verdict.FAIL, 1),
        ([row(), row(troubled="it raises")], [], None, Verdict.UNKNOWN, 2),
        ([row(), row(troubled="tpcheck raised", fault="Traceback")], [], None, Verdict.UNKNOWN, 3),
        ([row(), row(undecided="nothing was judged")], [], None, Verdict.UNKNOWN, 3),
        ([row(), row(cases=0)], [], None, Verdict.UNKNOWN, 3),
        ([row()], [], "interrupted", Verdict.UNKNOWN, 3),
    ],
)
def test_it_ends_as_verify_does(
    rows: list[Row], findings: list[Finding], reason: str | None, verdict: Verdict, code: int
) -> None:
    hunted = Hunted(rows, findings, reason=reason)
    assert (hunted.verdict, hunted.exit_code) == (verdict, code)


def test_the_chance_of_something_new_is_the_share_of_lone_cases() -> None:
    assert Hunted([row(), row(cases=30, lone=0)]).chance == pytest.approx(2 / 40)
    assert Hunted([row(cases=0, lone=0)]).chance is None


def test_a_finding_goes_to_json_and_back() -> None:
    there = json.loads(json.dumps(finding().also("output y").to_dict()))
    back = Finding.from_dict(there)
    assert back == finding(signatures=("race kernel:7", "output y"))
    with pytest.raises(TypeError):
        Finding.from_dict({**there, "odd": 1})
