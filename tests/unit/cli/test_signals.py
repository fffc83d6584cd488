"""What ends a run from outside comes as an interrupt, once, with the exit code of a shell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tpcheck.cli import signals
from tpcheck.errors import ENDING, Interrupted


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    assert {number: signal.getsignal(number) for number in ENDING} == before


def come(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_first_signal_interrupts_and_says_the_exit_code(number: int, code: int) -> None:
    with signals.heard():
        with pytest.raises(Interrupted):
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


def test_while_torch_is_loaded_the_process_ends_at_once() -> None:
    with signals.heard():
        if (child := os.fork()) == 0:
            try:
                with signals.loading():
                    come(signal.SIGTERM)
            finally:
                os._exit(0)  # it went on
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143


def goes_on() -> None:
    """As code of a user's may, or what is called when an object is collected."""
    with contextlib.suppress(BaseException):
        come(signal.SIGTERM)


def test_an_interrupt_that_is_caught_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "AGAIN", 0.01)
    waits = threading.Event()
    with signals.heard() as heard, pytest.raises(KeyboardInterrupt), signals.as_interrupt():
        goes_on()
        goes_on()
        waits.wait(60)
    assert heard.arrived and heard.exit_code == 143


@pytest.mark.parametrize(("number", "told"), [(signal.SIGTERM, 0), (None, 1)])
def test_python_tells_nothing_of_an_interrupt_that_it_ignores(
    number: int | None, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Collected:
        def __del__(self) -> None:
            if number is None:
                raise ZeroDivisionError
            come(number)

    lines: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lines.append)
    with signals.heard() as heard, signals.untold():
        Collected()
    assert (heard.first, len(lines)) == (number, told)
    lines.clear()


def test_one_that_is_on_its_way_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "AGAIN", 0.01)
    reminded: list[int] = []
    with signals.heard() as heard:
        hear = heard.hear
        signal.signal(signal.SIGTERM, lambda *given: (reminded.append(1), hear(*given)))
        waits = threading.Event()
        with pytest.raises(KeyboardInterrupt), signals.as_interrupt():
            try:
                come(signal.SIGTERM)
            finally:
                while len(reminded) < 4:  # what cleans up is not disturbed
                    waits.wait(0.01)
        signal.signal(signal.SIGTERM, hear)


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


def test_at_its_exit_a_process_ends_by_another_ctrl_c_without_a_word() -> None:
    script = (
        "import atexit, os, signal\n"
        "from tpcheck.cli import signals\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), os._exit(7)))\n"
        "print('said')\n"
        "signals.end_at_once()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "said\n", "")
