"""What all cases together got to: it only grows, and what is missing goes away with more cases."""

from __future__ import annotations

import json
import math

import pytest

from tpcheck.evidence.judged import Judged
from tpcheck.report import reasons
from tpcheck.search.reach import Reach
from tpcheck.vocabulary import Kind, Unjudged

Y, DX = (Kind.OUTPUT, "y"), (Kind.INPUT_GRAD, "x")
WHOLE, EMPTY = Judged(4, 4, 1, 1), Judged(0, 0, 1, 1)
BLIND = Judged(4, 0, 1, 0, {Unjudged.OVERFLOW: 4})


def of(tp: int, y: Judged = WHOLE, dx: Judged = WHOLE) -> Reach:
    return Reach(1, frozenset({tp}), frozenset(), {Y: y, DX: dx})


def test_nothing_is_missing_where_every_degree_ran_and_every_tensor_was_judged() -> None:
    assert of(2).after(of(4)).missing([2, 4]) is None


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (of(2), reasons.never_ran([4])),
        (of(4, dx=BLIND), reasons.never_ran([2])),
        (of(2, EMPTY, EMPTY).after(of(4, EMPTY, EMPTY)), reasons.all_empty(2)),
        (of(2, dx=BLIND).after(of(4)), None),
        (
            of(2, dx=BLIND).after(of(4, dx=BLIND)),
            reasons.never_judged({DX: Judged(8, 0, 2, 0, {Unjudged.OVERFLOW: 8})}),
        ),
    ],
)
def test_what_is_missing_is_told_until_cases_have_it(first: Reach, said: str | None) -> None:
    assert first.missing([2, 4]) == said
    assert first.after(of(2)).after(of(4)).missing([2, 4]) is None


def test_a_degree_at_which_the_spec_has_no_case_is_not_missing() -> None:
    assert of(2).after(Reach(impossible=frozenset({4}))).missing([2, 4]) is None


def test_where_no_case_counts_nothing_was_compared() -> None:
    assert Reach().missing([2]) == reasons.nothing_judged({})


def test_it_goes_to_json_and_back() -> None:
    reach = Reach(3, frozenset({4, 2}), frozenset({8}), {Y: WHOLE, DX: BLIND})
    assert Reach.from_dict(json.loads(json.dumps(reach.to_dict()))) == reach


@pytest.mark.parametrize(
    "judged",
    [[["output"]], [["nothing", "y", 1, 1, 1, 1, {}]], 3, [["output", "y", math.inf, 1, 1, 1, {}]]],
)
def test_what_is_not_one_is_an_error(judged: object) -> None:
    data = Reach().to_dict() | {"judged": judged}
    with pytest.raises((TypeError, KeyError, ValueError, OverflowError)):
        Reach.from_dict(data)
