"""Which ways to read random masks are left to be tried."""

from __future__ import annotations

from tpcheck.case import Case
from tpcheck.protocol.messages import RankReport
from tpcheck.runner.readings import MOST, may_be_misread, untried
from tpcheck.tensors.readings import Reading
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Kind

A, B, C = (Reading(order) for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1)))


def reports(*ranks: dict[str, list[Reading]]) -> list[RankReport]:
    return [RankReport(i, readings=own) for i, own in enumerate(ranks)]


def test_what_all_ranks_took_first_is_not_tried_again() -> None:
    assert untried(reports({"x": [A, B]}, {"x": [A, B]})) == [{"x": B}]
    assert untried(reports({"x": [A]}, {"x": [A]})) == []
    assert untried(reports({}, {})) == []


def test_only_what_fits_on_all_ranks() -> None:
    assert untried(reports({"x": [A, B, C]}, {"x": [B, C]})) == [{"x": B}, {"x": C}]
    assert untried(reports({"x": [A]}, {"x": [B]})) == []
    assert untried(reports({"x": [A]}, {})) == []


def test_lines_are_read_each_by_itself() -> None:
    both = {"x": [A, B], "y": [A, C]}
    assert untried(reports(both, both)) == [{"x": A, "y": C}, {"x": B, "y": A}, {"x": B, "y": C}]
    many = {str(line): [A, B, C] for line in range(9)}
    assert len(untried(reports(many, many))) < MOST


def test_what_was_refuted_by_an_earlier_step_is_not_tried() -> None:
    first, second = reports({"x": [A, B, C]}, {"x": [A, B, C]})
    first.apart, second.apart = {"x": {B: 1}}, {"x": {B: 2, C: 2}}
    assert untried([first, second], 2) == [{"x": B}, {"x": C}], "the second step is the wrong one"
    assert untried([first, second], 3) == [{"x": C}], "the second step is right"
    assert untried([first, second], 4) == []


def test_only_wrong_values_may_be_misread() -> None:
    def of(*kinds: Kind) -> CaseResult:
        return CaseResult(Case(), "gloo", [Mismatch("x", kind, 0) for kind in kinds])

    assert may_be_misread(of(Kind.OUTPUT, Kind.PARAM_GRAD, Kind.REPLICA, Kind.GRAD_NORM))
    assert not may_be_misread(of(Kind.OUTPUT, Kind.MASK))
    assert not may_be_misread(of(Kind.EXCEPTION))
    assert not may_be_misread(of())
