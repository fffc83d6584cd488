"""What ends a run from outside: Ctrl-C, `timeout` and CI runners (SIGTERM), a closed terminal
(SIGHUP). Each arrives as a `KeyboardInterrupt`; reports are written, and the exit code is 128 and
the signal's number. Imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Those that have come.

    Args:
        first: the one that ended the run, None while it goes on.
        held: whether the first has to wait.
        deaf: whether none is heard any more.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.held = self.deaf = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """The first of all ends the run. What follows (a runner sends several) would cost its
        reports; only Ctrl-C, of somebody who waits, ends those, too."""
        again = self.first is not None
        self.first = self.first or number
        if number == signal.SIGHUP:
            _leave_terminal()
        if not self.deaf and (number == signal.SIGINT if again else not self.held):
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """As a shell says it."""
        return 128 + (self.first or signal.SIGINT)


_signals = Signals()


@contextlib.contextmanager
def heard() -> Iterator[Signals]:
    """In the block these signals are heard; those that are ignored (`nohup`) stay so. Only in the
    main thread."""
    global _signals
    _signals = Signals()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = handler
                signal.signal(number, _signals.hear)
    try:
        yield _signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """The first signal waits for the end of the block, which loads torch: half of it loaded, what
    writes the reports would crash."""
    _signals.held = True
    try:
        yield
    finally:
        _signals.held = False
    if _signals.first is not None:
        raise KeyboardInterrupt


@contextlib.contextmanager
def as_interrupt() -> Iterator[None]:
    """An interrupt leaves the block as one. Libraries that it comes through may turn it into an
    error of their own: Hypothesis' engine asserts what an interrupt leaves undone."""
    try:
        yield
    except Exception as error:
        if _signals.first is None:
            raise
        raise KeyboardInterrupt from error


def exit_code() -> int:
    """What an interrupted run ends with."""
    return _signals.exit_code


def _leave_terminal() -> None:
    """What is printed goes nowhere where the terminal is gone, rather than to raise."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
            if is_device and not os.isatty(descriptor):  # nor does one that is gone say that it is
                sink = os.open(os.devnull, os.O_WRONLY)
                os.dup2(sink, descriptor)
                os.close(sink)
