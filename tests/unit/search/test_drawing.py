"""Draws: the same for a key whatever is loaded, and by choices that were made before."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from unittest import SkipTest

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tpcheck import strategies
from tpcheck.case import Case
from tpcheck.search import drawing
from tpcheck.space import Space

NUMBERS = strategies.cases(Space((2,)), {"n": st.integers(0, 10**6)})


def test_reseeded_cases_differ_in_their_seed_alone() -> None:
    again = drawing.reseeded([Case(), Case()], "key")
    assert len({case.seed for case in again}) == 2
    assert {case.describe().replace(f" seed={case.seed}", "") for case in again} == {"tp=2 float64"}
    assert again == drawing.reseeded([Case(), Case()], "key")


def test_draws_do_not_depend_on_what_else_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis draws literals of local code, and which code is loaded depends on the other checks
    of the run."""

    def draw() -> list[int]:
        wide = strategies.cases(Space((2,)), {"n": st.integers(0, 10**9)})
        return [case["n"] for case in drawing.sample(wide, 300, "key")]

    before = draw()
    monkeypatch.syspath_prepend(tmp_path)
    literals = [987_000_000 + n for n in range(50)]
    (tmp_path / "another_check.py").write_text(f"NUMBERS = {literals}\n")
    importlib.import_module("another_check")
    try:
        assert not set(draw()) & set(literals)
        assert draw() == before
    finally:
        del sys.modules["another_check"]


def test_draws_do_not_depend_on_what_a_users_own_tests_have_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hypothesis keeps the literals that a kind of draw permits, those of local code among them."""
    before = drawing.sample(NUMBERS, 300, "key")
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", LRUCache(1024))
    literals = Constants(integers={654_321 + n for n in range(50)})

    @settings(max_examples=300, database=None)
    @given(st.integers(0, 10**6))
    def their_own(_: int) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(providers, "_get_local_constants", lambda: literals)
        their_own()
    kept = [numbers for each in providers.CONSTANTS_CACHE.cache.values() for numbers in each]
    assert any(set(numbers) == literals.integers for numbers in kept)
    assert drawing.sample(NUMBERS, 300, "key") == before


def test_by_its_choices_a_failing_case_is_drawn_and_made_smaller() -> None:
    large: dict[int, bytes] = {}

    def note(case: Case) -> None:
        large[case["n"]] = drawing.choices()

    drawing.each(NUMBERS, 50, "key", note)
    found: list[int] = []

    def examine(case: Case) -> None:
        if case["n"] > 1000:
            found.append(case["n"])
            raise ArithmeticError

    phases = [Phase.reuse, Phase.shrink]
    with pytest.raises(ArithmeticError):
        drawing.each(
            NUMBERS, 5, "", examine, phases=phases, database=drawing.Given([large[max(large)]])
        )
    assert found[0] == max(large) and min(found) == 1001


def test_without_choices_to_begin_with_there_is_no_case() -> None:
    nothing = drawing.Given([])
    with pytest.raises((Unsatisfiable, SkipTest)) as raised:  # pytest skips for the latter
        drawing.each(NUMBERS, 5, "", print, phases=[Phase.reuse], database=nothing)
    assert raised.type is Unsatisfiable


def test_no_source_is_read_for_a_digest_that_nobody_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import hypothesis.core

    def digest(function: object) -> bytes:
        raise AssertionError("4 ms each time that ten cases are drawn")

    monkeypatch.setattr(hypothesis.core, "function_digest", digest)
    assert len(drawing.sample(NUMBERS, 5, "key")) == 5
