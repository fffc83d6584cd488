"""A failure in a line, as a dashboard of JUnit's reports shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.report.test_machine import FAILED, junit
from tpcheck.evidence.known import KnownAs, Likeness
from tpcheck.report.text import SHORT
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Code, Kind


def test_a_failure_says_at_one_glance_what_is_wrong_and_where() -> None:
    found = junit(FAILED).find("testcase/failure")
    assert found is not None
    assert found.get("message") == 'unclassified in output y (tp=2 float64): <"&">'
    assert found.get("type") == "unclassified"


def test_a_failure_in_short_is_one_line_whatever_an_exception_prints() -> None:
    example = FAILED.counterexample
    assert example is not None
    long = replace(example.diagnosis, code=Code.RANK_CRASH, message="tensor([1,\n 2])" * 99)
    other = replace(FAILED, counterexample=replace(example, diagnosis=long))
    found = junit(other).find("testcase/failure")
    assert found is not None
    said = str(found.get("message"))
    assert said.startswith("rank-crash in output y") and len(said) == SHORT and "\n" not in said
    assert str(found.text).count("tensor([1,") == 99, "the text has all of it"


@pytest.mark.parametrize("how", Likeness)
def test_a_failure_that_is_a_known_finding_says_so_at_one_glance(how: Likeness) -> None:
    example = FAILED.counterexample
    assert example is not None
    known = KnownAs("x.md", "torch", "==2.*", "2.13", how, "a.py:3 in f")
    found = junit(replace(FAILED, counterexample=replace(example, known=known)))
    failure = found.find("testcase/failure")
    assert failure is not None
    is_one = how in (Likeness.SEEN, Likeness.DECLARED)
    assert ("float64, known finding x.md): " in str(failure.get("message"))) == is_one
    assert "known finding  x.md" in str(failure.text), "whatever it is"


@pytest.mark.parametrize(
    ("kind", "tensor", "message", "said"),
    [
        (Kind.OUTPUT, "output", "output is zero", "(tp=2 float64): output is zero"),
        (Kind.OUTPUT, "output", "w as loaded", "in output (tp=2 float64): w as loaded"),
        (Kind.SHARDING, "up.weight", "why", "in up.weight (tp=2 float64): why"),
        (Kind.EXCEPTION, "exception", "rank 1 raised", "(tp=2 float64): rank 1 raised"),
    ],
)
def test_the_tensor_is_said_once_and_where_there_is_one(
    kind: Kind, tensor: str, message: str, said: str
) -> None:
    example = FAILED.counterexample
    assert example is not None
    diagnosis = replace(example.diagnosis, message=message)
    own = replace(example, mismatches=[Mismatch(tensor, kind, 0)], diagnosis=diagnosis)
    found = junit(replace(FAILED, counterexample=own)).find("testcase/failure")
    assert found is not None and found.get("message") == f"unclassified {said}"
