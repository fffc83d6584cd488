"""No evidence and no cause that its type allows keeps a report from being written."""

from __future__ import annotations

import itertools
import json
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.report.odd import instances, members
from tpcheck.case import Case
from tpcheck.causes import Cause
from tpcheck.causes.where import FirstSeen
from tpcheck.evidence import Evidence, Values
from tpcheck.report import as_json, machine, text
from tpcheck.report.diagnoses import sentence
from tpcheck.report.diagnoses.where import first_seen
from tpcheck.verdict import CheckResult, Counterexample, Diagnosis, Mismatch, Verdict
from tpcheck.vocabulary import Code, Kind

NUMBERS: list[tuple[Any, ...]] = [
    (None, None, None, None, None),
    ((0,), 1.0, float("nan"), float("inf"), 0.0),
    ((), None, 1.0, None, None),
]


def failed(*mismatches: Mismatch, diagnosis: Diagnosis | None = None) -> CheckResult:
    cause = next(instances(next(members(Cause))))
    told = diagnosis or Diagnosis(Code.UNCLASSIFIED, cause, "x")
    found = Counterexample("7f3a91", Case(), list(mismatches), told, "gloo")
    return CheckResult("row", Verdict.FAIL, "gloo", counterexample=found)


def written(result: CheckResult) -> str:
    """The page; and the reports parse."""
    about: dict[str, Any] = {"started": "", "seed": 0, "engine": "gloo", "ranks": 2}
    report = machine.json_report([result], seconds=0.0, **about)
    json.loads(machine.dumps(report).encode("utf-8"), parse_constant=lambda token: 1 / 0)
    ElementTree.fromstring(machine.as_junit([result], seconds=0.0).encode("utf-8"))
    return text.page(result)


@pytest.mark.parametrize("kind", list(members(Evidence)), ids=lambda kind: kind.__name__)
def test_every_piece_of_evidence_is_told(kind: type) -> None:
    for detail, numbers in itertools.product(instances(kind), NUMBERS):
        for of in (Kind.OUTPUT, Kind.PARAM_GRAD, Kind.SHARDING, Kind.CRASH, Kind.COLLECTIVE):
            mismatch = Mismatch("y", of, 0, *numbers, detail)
            assert text.describe(mismatch) and as_json.mismatch(mismatch)
    shown = written(failed(mismatch))
    assert "can't be written" not in shown and shown.replace("\n", "").isprintable()


@pytest.mark.parametrize("kind", list(members(Cause)), ids=lambda kind: kind.__name__)
def test_every_cause_is_told(kind: type) -> None:
    for cause in instances(kind):
        said = Diagnosis(Code.UNCLASSIFIED, cause, sentence(cause))
        assert as_json.diagnosis(said)
    assert "can't be written" not in written(failed(diagnosis=said))


def test_every_place_is_told() -> None:
    for kind in members(FirstSeen):
        assert all(first_seen(seen) for seen in instances(kind))
    assert first_seen(None) is None


def test_a_page_that_can_not_be_written_is_one_line_and_the_others_stand() -> None:
    broken = Mismatch("y", Kind.OUTPUT, 0, (0,), 1.0, 2.0, "x", 1.0, Values(1, 1))  # type: ignore[arg-type]
    page = written(failed(broken))
    assert len(page.splitlines()) == 1
    assert page.startswith("FAIL  row: its report can't be written (Values")
    assert written(failed()).startswith("FAIL  row › ?")
