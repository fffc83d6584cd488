"""The ledger of known findings: what each case does to it, without any rank."""

from __future__ import annotations

import importlib.metadata

import pytest

from tpcheck import Case, KnownFinding
from tpcheck.evidence import Values
from tpcheck.search.ledger import Ledger
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

VERSION = importlib.metadata.version("torch").partition("+")[0]
CASE = Case({"n": 1})
FINDING = KnownFinding("torch", f"=={VERSION}", "rank-crash", CASE, "x.md", lambda c: c["n"] < 3)
ELSEWHERE = KnownFinding("torch", "==0.1", "rank-crash", CASE, "y.md")


def passes(n: int) -> CaseResult:
    return CaseResult(Case({"n": n}), "gloo")


def fails(n: int) -> CaseResult:
    wrong = Mismatch("y", Kind.OUTPUT, 0, (0,), 1.0, 2.0, 1.0, 0.0, Values(1, 1))
    return CaseResult(Case({"n": n}), "gloo", [wrong])


def test_a_diagnosis_is_asked_for_where_a_finding_covers_a_failure() -> None:
    ledger = Ledger([FINDING, ELSEWHERE])
    assert ledger.asks_why(fails(1)) and not ledger.asks_why(passes(1))
    assert not ledger.asks_why(fails(3)), "not covered"
    assert not Ledger([ELSEWHERE]).asks_why(fails(1)), "another release"


@pytest.mark.parametrize(
    ("code", "explained", "state"),
    [
        ("rank-crash", True, "known"),
        ("summed-twice", False, "other-diagnosis"),
        (None, False, "not-run"),  # it does not hold up on real ranks
    ],
)
def test_a_failure_counts_as_known_under_its_diagnosis_alone(
    code: str | None, explained: bool, state: str
) -> None:
    ledger = Ledger([FINDING])
    ledger.enter(fails(1), code)
    assert ledger.explains(fails(1)) is explained
    assert ledger.report()[0].state == state and ledger.stale() is None


def test_a_case_that_should_fail_and_passes_makes_the_declaration_stale() -> None:
    ledger = Ledger([FINDING])
    ledger.enter(passes(3))
    assert ledger.stale() is None
    ledger.enter(passes(2))
    assert "does not show with torch" in str(ledger.stale())
    assert ledger.report()[0].state == "does-not-show"
