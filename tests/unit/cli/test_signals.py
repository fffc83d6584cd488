"""What ends a run from outside comes as an interrupt, once, with the exit code of a shell."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tpcheck.cli import signals


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in signals.ENDING}
    yield
    assert {number: signal.getsignal(number) for number in signals.ENDING} == before


def come(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_first_signal_interrupts_and_says_the_exit_code(number: int, code: int) -> None:
    with signals.heard():
        with pytest.raises(KeyboardInterrupt):
            come(number)
        assert signals.exit_code() == code


def test_what_follows_does_not_cost_the_reports_but_ctrl_c_does() -> None:
    with signals.heard() as heard:
        with pytest.raises(KeyboardInterrupt):
            come(signal.SIGHUP)
        come(signal.SIGTERM)
        come(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            come(signal.SIGINT)
        assert heard.exit_code == 129, "the first one's"


def test_while_torch_is_loaded_the_first_signal_waits() -> None:
    with signals.heard():
        whole = False
        with pytest.raises(KeyboardInterrupt), signals.held():
            come(signal.SIGTERM)
            whole = True
        assert whole


def test_an_error_that_an_interrupt_became_is_an_interrupt() -> None:
    def as_hypothesis_does() -> None:
        try:
            come(signal.SIGTERM)
        finally:
            raise AssertionError("an interrupt left this undone")

    with signals.heard():
        with pytest.raises(ZeroDivisionError), signals.as_interrupt():
            _ = 1 / 0
        with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
            as_hypothesis_does()


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.heard():
            come(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
