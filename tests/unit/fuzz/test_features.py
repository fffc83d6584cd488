"""What a case shows: classes of sizes, pairs of the configuration, what was seen in the run."""

from __future__ import annotations

import math

import pytest

from tpcheck import Case
from tpcheck.event import Event
from tpcheck.fuzz.features import (
    EXACT,
    behaviour,
    configuration,
    features,
    is_way,
    schedule,
    score,
    size_class,
)
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Phase

CASE = Case(dims={"rows": 3, "width": 65}, mesh={"tp": 1})


def event(op: str, *group: int) -> Event:
    return Event(op, "sum", group, "float32", (2,), 2, 8, Phase.FORWARD, "")


def result(*trace: list[Event], usage: float = 0.0, case: Case = CASE) -> CaseResult:
    return CaseResult(case, "gloo", trace=list(trace), usage=usage)


@pytest.mark.parametrize(
    ("size", "is_"),
    [
        (0, "0"), (1, "1"), (2, "2^1..") , (3, "2^2-1"), (4, "2^2"), (5, "2^2+1"), (6, "2^2.."),
        (11, "2^3..odd"), (63, "2^6-1"), (64, "2^6"), (65, "2^6+1"), (1024, "2^10"),
    ],
)  # fmt: skip
def test_a_size_is_of_the_class_of_where_blocks_end(size: int, is_: str) -> None:
    assert size_class(size) == is_


def test_every_two_of_a_configuration_are_a_feature() -> None:
    words = set(configuration(CASE))
    assert {"dtype=float64", "width=2^6+1", "dtype=float64 width=2^6+1"} <= words
    other = set(configuration(Case(dims={"rows": 3, "width": 64}, mesh={"tp": 1})))
    assert words - other == {word for word in words if "2^6+1" in word}


def test_the_seed_is_no_feature() -> None:
    again = Case(dims=dict(CASE.dims), mesh={"tp": 1}, seed=7)
    assert features(result()) == features(result(case=again))


def test_the_worst_error_is_a_feature_in_steps_of_its_bound() -> None:
    shown = {usage: next(behaviour(result(usage=usage))) for usage in (0.0, 0.2, 0.24, 0.9)}
    assert shown[0.2] == shown[0.24]
    assert len(set(shown.values())) == 3


def test_the_order_of_collectives_is_a_feature_and_who_is_in_them() -> None:
    one = result([event("all_reduce", 0, 1)], [event("all_reduce", 0, 1)])
    same = result([event("all_reduce", 0, 1)], [event("all_reduce", 0, 1)], usage=0.5)
    other = result([event("all_gather", 0, 1)], [event("all_gather", 0, 1)])
    assert schedule(one) == schedule(same) != schedule(other)
    assert any(schedule(one) in word for word in behaviour(one))


def test_what_was_seen_of_a_run_is_a_feature_and_some_of_it_the_way_that_it_took() -> None:
    of_sizes = {"mask k:7 some", "launch k programs=2"}
    ways = {"branch 12", "launch k FAST=True"}
    shown = {*behaviour(CaseResult(CASE, "gloo", ways=of_sizes | ways, usage=0.3))}
    assert shown == {f"seen {word}" for word in {*of_sizes, *ways, "error=-2"}}
    assert {word for word in shown if is_way(word)} == {f"seen {word}" for word in ways}
    close = {*behaviour(CaseResult(CASE, "gloo", usage=0.6))}
    assert "seen close" in filter(is_way, close) and "seen close" not in shown


@pytest.mark.parametrize("usage", [0.0, -1.0, math.nan, math.inf, 1e-300, 0.5])
def test_a_score_is_finite_as_hypothesis_wants_it(usage: float) -> None:
    assert math.isfinite(score(result(usage=usage)))


def test_a_larger_error_scores_higher() -> None:
    assert EXACT == score(result()) < score(result(usage=0.1)) < score(result(usage=0.2))
