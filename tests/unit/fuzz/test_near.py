"""Hunts near known cases, and from one case on, without ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.search.test_hunt import NUMBERED, WRONG, FakeTrials
from tpcheck import Case
from tpcheck.errors import CaseError
from tpcheck.fuzz import near as room
from tpcheck.fuzz.near import Again, Around, Near
from tpcheck.fuzz.shelf import Parent
from tpcheck.search import drawing
from tpcheck.search.hunt import Hunt
from tpcheck.search.of_spec import cases_of
from tpcheck.search.options import Options
from tpcheck.space import Space
from tpcheck.verdict import CaseResult, Mismatch


def of_hunt(
    wrong: Callable[[Case], Mismatch | None], usage: Callable[[Case], float], **options: Any
) -> tuple[Any, ...]:
    """What hunts are made of, with trials in which a case is as near to its bound as is said."""

    class Trials(FakeTrials):
        def run(self, case: Case, then: Case | None = None, **more: bool) -> CaseResult:
            result = super().run(case, then, **more)
            result.usage = usage(case)
            return result

    given = Options(degrees=(2,), corpus=None, **options)
    return NUMBERED, 4, given, Trials(wrong), lambda result: None


def a_case(like: Callable[[Case], bool]) -> tuple[Case, bytes]:
    found: list[tuple[Case, bytes]] = []
    space = Space((2,), Options().dtypes, 4)
    drawing.each(
        cases_of(NUMBERED.spec, space),
        200,
        "k",
        lambda c: found.append((c, drawing.choices())),
    )
    return next((case, choices) for case, choices in found if like(case))


def around(choices: bytes, **more: Any) -> Around:
    return Around(**{"degree": 2, "parents": (Parent(choices),), "seen": {}, "scores": {}, **more})


def never(case: Case) -> None:
    return None


def test_it_climbs_to_errors_nearer_to_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "variants", lambda parents, *_: [one.choices for one in parents])
    case, choices = a_case(lambda case: 0 < case["a"] < 1000)
    given = of_hunt(never, lambda case: case["a"] / 10**6, examples=60)
    assert Near(around(choices), *given).run(None) is None
    ran = list(given[3].results.values())
    assert ran[0].case == case and len(ran) <= 60
    assert max(result.usage for result in ran) > 1.5 * ran[0].usage
    assert len({replace(result.case, seed=0) for result in ran}) == len(ran), "seeds are no way up"


def test_what_fails_is_found_and_its_choices_are_known() -> None:
    case, choices = a_case(lambda case: case["b"] > 17)
    given = of_hunt(lambda c: WRONG if c["b"] > 17 else None, lambda c: 0.0, examples=20)
    near = Near(around(choices), *given)
    found = near.run(None)
    assert found is not None and near.choices(found.case) is not None
    assert near.choices(Case()) is None and case


def test_what_ran_before_is_not_run_again_and_nothing_known_is_no_turn() -> None:
    case, choices = a_case(lambda case: case["a"] > 0)
    given = of_hunt(never, lambda c: 0.5, examples=20)
    Near(around(choices, scores={hash(case): -1.0}), *given).run(None)
    assert given[3].results and given[3].result(case) is None
    given = of_hunt(never, lambda c: 0.5, examples=20)
    assert Near(around(choices, parents=()), *given).run(None) is None and not given[3].results


def wrong_beyond(case: Case) -> Mismatch | None:
    return WRONG if case["a"] > 1000 and case["b"] > 17 else None


def test_a_saved_case_is_made_smaller_by_its_choices() -> None:
    case, choices = a_case(lambda case: wrong_beyond(case) is not None)
    given = of_hunt(wrong_beyond, lambda c: 0.0, shrink_cases=200)
    found = Again(case, choices, *given).run(None)
    assert found is not None and (found.case["a"], found.case["b"]) == (1001, 18)


def test_without_choices_or_leave_it_is_run_as_it_is() -> None:
    case, choices = a_case(lambda case: wrong_beyond(case) is not None)
    for known, shrink_cases in ((None, 200), (choices, 0)):
        given = of_hunt(wrong_beyond, lambda c: 0.0, shrink_cases=shrink_cases)
        found = Again(case, known, *given).run(None)
        assert found is not None and found.case == case and len(given[3].results) == 1
    right: Hunt = Again(Case(dims={"a": 1, "b": 1}), None, *of_hunt(wrong_beyond, lambda c: 0.0))
    assert right.run(None) is None


def test_one_that_is_no_case_of_its_check_any_more_says_so() -> None:
    def raises(case: Case) -> None:
        raise CaseError("the case has no dim 'cols'")

    hunt = Again(Case(dims={"a": 1, "b": 1}), None, *of_hunt(raises, lambda c: 0.0))
    assert hunt.run(None) is None and hunt.stale == "the case has no dim 'cols'"


def test_a_turn_that_does_not_climb_runs_what_is_bred_and_other_seeds_of_it() -> None:
    _, choices = a_case(lambda case: case["a"] > 0)
    given = of_hunt(never, lambda c: 0.5, examples=30)
    Near(around(choices, climbs=False), *given).run(None)
    ran = [result.case for result in given[3].results.values()]
    assert 10 < len(ran) <= 30 and len({replace(one, seed=0) for one in ran}) < len(ran)


def test_large_cases_are_run_as_often_as_they_are_bred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis takes the simplest first: of more than may run the largest would not."""
    asked: list[int] = []

    def bred(parents: object, others: object, seen: object, made: object, n: int, _: str) -> Any:
        asked.append(n)
        return drawn[:n]

    found: dict[Case, bytes] = {}
    space = Space((2,), Options().dtypes, 4)
    drawing.each(
        cases_of(NUMBERED.spec, space), 60, "k", lambda c: found.update({c: drawing.choices()})
    )
    known, drawn = next(iter(found)), list(found.values())
    monkeypatch.setattr(room, "variants", bred)
    given = of_hunt(never, lambda c: 0.5, examples=20)
    Near(around(drawn[0], climbs=False, scores={hash(known): 0.0}), *given).run(None)
    ran = [result.case for result in given[3].results.values()]
    assert asked == [20, 1, 1] and set(ran) == set(list(found)[1:20])
