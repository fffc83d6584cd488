"""What kinds of case ran, and what a strategy does not draw. No ranks: results are made here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from tpcheck import specs
from tpcheck.case import Case
from tpcheck.report import kinds as report
from tpcheck.search.kinds import kinds
from tpcheck.search.options import Options
from tpcheck.search.stream import shows

ONE = Case(dims={"n": 1, "bias": False}, mesh={"tp": 2})
TWO = replace(ONE, dims={"n": 2, "bias": True})
FIVE = replace(ONE, dims={"n": 5, "bias": True}, step=True)


def trials(*cases: Case, counts: bool = True) -> Any:
    results = [SimpleNamespace(case=case, counts=counts) for case in cases]
    return SimpleNamespace(results={str(i): result for i, result in enumerate(results)})


def hunt(*drawn: Case, more: tuple[Case, ...] = (), **fields: Any) -> Any:
    def strategy(degree: int) -> st.SearchStrategy[Case]:
        if not more:
            raise ValueError("its strategy raises")
        return st.sampled_from(more)

    return SimpleNamespace(
        all_drawn=lambda: list(drawn),
        degrees=lambda: [2],
        strategy=strategy,
        options=Options(dtypes=("float64", "float32"), corpus=None),
        check=SimpleNamespace(spec=replace(specs.mlp(), **fields)),
    )


def test_pairs_and_sizes_are_those_of_cases_that_ran() -> None:
    found = kinds(hunt(ONE, FIVE), trials(ONE, TWO), draw=False)
    assert found.shown == len(shows(ONE) | shows(TWO))
    assert found.possible == len(shows(ONE) | shows(TWO) | shows(FIVE))
    assert found.sizes == {"n": (1, 2)}
    assert kinds(hunt(ONE), trials(ONE, counts=False), draw=False).shown == 0


def test_what_was_drawn_and_did_not_run_is_told_apart_from_what_never_comes() -> None:
    found = kinds(hunt(ONE, FIVE), trials(ONE), draw=False)
    assert ("step", True) in found.waiting and ("bias", True) in found.waiting
    assert ("step", True) not in found.never
    assert ("step", False) not in found.waiting, "it ran"
    assert ("dtype", "float32") in found.never and ("n", (False, 0, True)) in found.never
    assert ("n", (False, -1, False)) not in found.never, "no size but 1 is below a degree of 2"
    higher = kinds(hunt(replace(ONE, mesh={"tp": 4})), trials(ONE), draw=False)
    assert ("n", (False, -1, False)) in higher.never


def test_what_a_spec_narrows_is_not_said_to_be_missing() -> None:
    fields: Any = {
        "dims": {"n": [1], "bias": False}, "memory": ("contiguous",), "dtypes": ("float64",),
    }  # fmt: skip
    never = kinds(hunt(ONE, **fields), trials(ONE), draw=False).never
    assert {name for name, _ in never} & {"n", "bias", "memory", "dtype"} == set()
    usual = kinds(hunt(ONE), trials(ONE), draw=False).never
    assert {name for name, _ in usual} >= {"n", "bias", "memory", "dtype"}


def test_what_the_strategy_can_reach_is_seen_by_drawing_more() -> None:
    alone = kinds(hunt(ONE), trials(ONE), draw=False)
    more = kinds(hunt(ONE, more=(ONE, FIVE)), trials(ONE), draw=True)
    assert ("step", True) in alone.never and ("step", True) not in more.never
    assert ("step", True) in more.waiting and more.possible > alone.possible
    assert more.shown == alone.shown, "none of these runs"


def test_a_strategy_that_raises_changes_nothing() -> None:
    assert kinds(hunt(ONE), trials(ONE), draw=True) == kinds(hunt(ONE), trials(ONE), draw=False)


def test_in_words() -> None:
    found = kinds(hunt(ONE, FIVE), trials(ONE), draw=False)
    pairs, waiting, never = report.lines(found)
    assert pairs == f"{found.shown} of {found.possible} pairs of features ran; sizes: n 1"
    assert "a step" in waiting and "n above the degree and no multiple of it" in waiting
    assert "n equal to the degree" in never and "dtype=float32" in never
    assert "widen the strategy" in never
    whole = kinds(hunt(), trials(ONE, FIVE), draw=False)
    assert "n 1 to 5" in report.lines(whole)[0]
    written = report.as_json(whole)
    assert written is not None and written["sizes"] == {"n": [1, 5]}
    assert "n equal to the degree" in written["never_drawn"]
    assert report.as_json(None) is None
