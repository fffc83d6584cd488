"""What kind of failure a case is: by its evidence, never by a sentence."""

from __future__ import annotations

import pytest

from tpcheck.case import Case
from tpcheck.evidence import Evidence, Raised, Scene, Stuck, Values
from tpcheck.search.failures import decided, family, size
from tpcheck.verdict import CaseResult, Mismatch, Verdict
from tpcheck.vocabulary import Impasse, Kind

LATE = Stuck(Impasse.TOO_LONG, seconds=30.0)
FOLLOWS = Stuck(Impasse.PEER_FAILED, scene=Scene(consequence=True))
WRONG = Values(wrong=1, of=4)


def result(*found: tuple[Kind, Evidence]) -> CaseResult:
    mismatches = [Mismatch("y", kind, rank, detail=e) for rank, (kind, e) in enumerate(found)]
    return CaseResult(Case(), "gloo", mismatches)


@pytest.mark.parametrize(
    ("found", "late"),
    [
        ([(Kind.HANG, LATE)], True),
        ([(Kind.HANG, LATE), (Kind.HANG, LATE)], True),
        ([(Kind.HANG, LATE), (Kind.EXCEPTION, FOLLOWS)], True),
        ([(Kind.HANG, LATE), (Kind.OUTPUT, WRONG)], False),
        ([(Kind.HANG, Stuck(Impasse.EVERY_RANK_WAITS))], False),
        ([(Kind.HANG, Stuck(Impasse.PEER_FINISHED, peer=0))], False),
        ([(Kind.EXCEPTION, Raised("TimeoutError", "the case took longer than 30 s"))], False),
        ([], False),
    ],
)
def test_the_time_limit_is_the_only_evidence(
    found: list[tuple[Kind, Evidence]], late: bool
) -> None:
    assert result(*found).timed_out is late


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_evidence_is_of_a_family(kind: Kind) -> None:
    assert family(result((kind, WRONG))) == ("values" if kind.is_value else kind)


def test_the_gravest_evidence_names_the_family_and_consequences_do_not() -> None:
    assert family(result((Kind.OUTPUT, WRONG), (Kind.SHARDING, WRONG))) == "sharding"
    assert family(result((Kind.OUTPUT, WRONG), (Kind.EXCEPTION, FOLLOWS))) == "values"
    assert family(result((Kind.HANG, LATE), (Kind.CRASH, WRONG))) == "crash"
    assert family(result()) == "none"


def test_what_meets_the_time_limit_once_is_not_decided_and_never_a_pass() -> None:
    late, right, wrong = result((Kind.HANG, LATE)), result(), result((Kind.OUTPUT, WRONG))

    def come_to(*results: CaseResult) -> CaseResult:
        left = list(results)
        last = decided(lambda: left.pop(0))
        assert not left, "run as often as it takes, and not more often"
        return last

    assert come_to(right) is right
    assert come_to(wrong) is wrong
    assert come_to(late, late).verdict is Verdict.FAIL
    assert come_to(late, wrong) is wrong
    once = come_to(late, right)
    assert once.verdict is Verdict.UNKNOWN and "time limit once" in str(once.unknown)


def test_the_duller_case_is_the_smaller_one() -> None:
    dull = Case({"n": 2})
    for other in (
        Case({"n": 2}, mesh={"tp": 4}),
        Case({"n": 3}),
        Case({"n": 2}, microbatches=2),
        Case({"n": 2}, dtype="bfloat16"),
        Case({"n": 2}, seed=1),
    ):
        assert size(CaseResult(dull, "gloo")) < size(CaseResult(other, "gloo"))
