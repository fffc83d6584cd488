"""Errors: which are the user's to mend, and what they suggest."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.engine import ConjectureRunner

from tpcheck import errors
from tpcheck.cli import signals
from tpcheck.errors import InvalidArgument, TpcheckError, did_you_mean
from tpcheck.failed import CheckFailed
from tpcheck.search import drawing


@pytest.mark.parametrize("kind", ["LayoutError", "CaseError", "EngineUnavailable"])
def test_what_the_user_can_mend_is_an_invalid_argument_and_a_value_error(kind: str) -> None:
    assert issubclass(getattr(errors, kind), InvalidArgument)
    assert issubclass(getattr(errors, kind), ValueError)


def test_a_collective_mismatch_is_evidence_not_bad_usage() -> None:
    assert issubclass(errors.CollectiveMismatch, TpcheckError)
    assert not issubclass(errors.CollectiveMismatch, InvalidArgument)


def test_a_failed_check_is_an_assertion_that_carries_its_results() -> None:
    error = CheckFailed("the report", [])
    assert isinstance(error, AssertionError) and not isinstance(error, InvalidArgument)
    assert (str(error), error.results) == ("the report", [])


def test_near_names_are_suggested_and_far_ones_are_not() -> None:
    known = ["q_proj.weight", "k_proj.weight", "norm.bias"]
    text = did_you_mean("q_porj.weight", known)
    assert "'q_proj.weight'" in text and "norm.bias" not in text


def test_when_nothing_is_near_all_names_are_listed() -> None:
    assert did_you_mean("zzzz", ["b", "a"]) == " (there are: a, b)"
    assert did_you_mean("zzzz", []) == " (there are none)"


@settings(max_examples=50)
@given(st.text(), st.lists(st.text(min_size=1), max_size=5))
def test_a_name_that_is_known_is_always_among_the_suggestions(name: str, known: list[str]) -> None:
    if name in known and name:
        assert repr(name) in did_you_mean(name, known)
    assert did_you_mean(name, iter(known)) == did_you_mean(name, known)


@pytest.mark.parametrize("error", [errors.Interrupted(), KeyboardInterrupt(), SystemExit()])
def test_code_that_raises_an_interrupt_is_no_signal(error: BaseException) -> None:
    """Where signals are heard, what they raise is `Interrupted`."""
    with signals.heard():
        if isinstance(error, errors.Interrupted):
            with pytest.raises(errors.Interrupted):
                errors.let_through(error)
        else:
            errors.let_through(error)


def test_under_pythons_own_handler_an_interrupt_may_be_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            errors.let_through(KeyboardInterrupt())
        errors.let_through(SystemExit())
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_on_whose_way_another_error_came_up_is_let_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise errors.Interrupted

    monkeypatch.setattr(ConjectureRunner, "__init__", interrupted)
    with signals.heard(), pytest.raises(errors.Interrupted):
        try:
            drawing.each(st.integers(), 1, "k", print)
        except AssertionError as error:  # of Hypothesis
            errors.let_through(error)


def test_an_error_of_a_circle_of_errors_is_not_looked_at_for_ever() -> None:
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first
    errors.let_through(first)
