"""What ends a run from outside: Ctrl-C, `timeout` and CI runners (SIGTERM), a closed terminal
(SIGHUP). Each arrives as an `Interrupted`; reports are written, and the exit code is 128 and
the signal's number. While torch is being loaded there is nothing to report, and the process ends
at once, with a line. Imports next to nothing.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from os import _exit
from types import FrameType
from typing import Any

from tpcheck.cli import early
from tpcheck.errors import ENDING, Interrupted

#: Seconds after which an interrupt that has not arrived is raised again. Code that it comes through
#: may catch all there is and go on; one that is on its way is left alone, however long it takes.
AGAIN = 1.0


class Signals:
    """Those that have come.

    Args:
        first: the one that ended the run, None while it goes on.
        loading: whether torch is being loaded.
        deaf: whether none is heard any more.
        arrived: whether the interrupt has come to where it is told.
        told: whether the command has said what it came to until then.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.loading = self.deaf = self.arrived = self.told = self._reminded = False
        self._reminding = _thread.allocate_lock()

    def hear(self, number: int, frame: FrameType | None) -> None:
        """The first of all ends the run. What follows (a runner sends several) would cost its
        reports; only Ctrl-C, of somebody who waits, ends those, too."""
        again = self.first is not None
        self.first = self.first or number
        if number == signal.SIGHUP:
            _leave_terminal()
        if self.deaf:
            return
        if self.loading:
            early.tell()
            _exit(self.exit_code)  # half of torch loaded, what cleans up would crash
        if self._reminded:
            self._reminded = False
            if not self.arrived and not _is_on_its_way():
                raise Interrupted
        elif not again:
            _thread.start_new_thread(self._remind, ())  # a handler must not wait for any lock
            raise Interrupted
        elif number == signal.SIGINT:
            raise Interrupted

    def _remind(self) -> None:
        """Has the main thread hear the first signal again, until it arrives."""
        while True:
            time.sleep(AGAIN)
            with self._reminding:
                if self.arrived or self.deaf:
                    return
                self._reminded = True
                main = threading.main_thread().ident
                signal.pthread_kill(main or 0, self.first or signal.SIGINT)

    def end(self) -> None:
        """Nobody is reminded from here on."""
        with self._reminding:
            self.arrived = True

    @property
    def exit_code(self) -> int:
        """As a shell says it."""
        return 128 + (self.first or signal.SIGINT)


def _is_on_its_way() -> bool:
    """Whether what runs now cleans up after an interrupt."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


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
            if handler in (signal.SIG_DFL, signal.default_int_handler, early.leave):
                before[number] = handler
                signal.signal(number, _signals.hear)
    try:
        yield _signals
    finally:
        _signals.end()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """The block loads torch, for seconds, and nothing was found before it: a signal ends the
    process there and then. What it makes stays: to look for garbage among that takes a fifth of
    the time."""
    _signals.loading, first = True, "torch" not in sys.modules
    if first:
        gc.disable()
    try:
        yield
    finally:
        _signals.loading = False
        if first:
            gc.freeze()
            gc.enable()


@contextlib.contextmanager
def as_interrupt() -> Iterator[None]:
    """An interrupt leaves the block as one, and has arrived. Libraries that it comes through may
    turn it into an error of their own: Hypothesis' engine asserts what an interrupt leaves undone.
    """
    try:
        yield
    except KeyboardInterrupt:
        _signals.arrived = True
        raise
    except Exception as error:
        if _signals.first is None:
            raise
        _signals.arrived = True
        raise Interrupted from error


@contextlib.contextmanager
def untold() -> Iterator[None]:
    """Where an interrupt comes in a destructor, say, Python prints a traceback and goes on. In the
    block it prints none: the interrupt comes again."""
    before = sys.unraisablehook

    def tell(given: Any) -> None:
        if _signals.first is None or not isinstance(given.exc_value, KeyboardInterrupt):
            before(given)

    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = before


def end_at_once() -> None:
    """The process has said all that it has to say: another Ctrl-C ends it there and then. What runs
    at its exit would tell of it in a traceback, and may wait for others."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    code = exit_code()
    signal.signal(signal.SIGINT, lambda *_: _exit(code))


def told() -> None:
    """The command has said what it came to: an interrupt needs no line of its own."""
    _signals.told = True


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
