"""A limit on what the driver itself computes: a reference may run for ever."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from os import _exit, getpid
from types import FrameType
from typing import Any

from tpcheck.process.delays import Delay

#: Seconds between two tries to stop a block that goes on, having caught the first one.
AGAIN = 1.0


class TimeUp(BaseException):
    """The time is up. Not an `Exception`: code that catches those does not catch it."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises `TimeUp` in the block once it has taken `seconds`: as soon as Python code runs there,
    so that one call into torch is waited for. Time in which other processes had the processors does
    not count."""
    main = threading.current_thread() is threading.main_thread()
    # a handler that was not set from Python could not be put back
    by_signal = main and signal.getsignal(signal.SIGALRM) is not None
    with _by_signal(seconds) if by_signal else _by_thread(seconds):
        yield


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """A child that the spec's own code forks, and that comes out of it, too, ends here: it would go
    on as a second driver."""
    own = getpid()
    try:
        yield
    finally:
        end_child(own)


def end_child(own: int) -> None:
    """Ends this process where it is not the one of this number, but a child of it."""
    if getpid() != own:
        _exit(0)


class _Alarm:
    """SIGALRM for our limit and for what the user has set: their timer rings when it is due."""

    def __init__(self, seconds: float) -> None:
        now = time.monotonic()
        self.handler: Any = signal.getsignal(signal.SIGALRM)
        left, self.interval = signal.getitimer(signal.ITIMER_REAL)
        self.due, self.theirs = now + seconds, now + left if left else math.inf
        self.armed = True
        self._delay = Delay(threading.get_native_id())

    def set(self) -> None:
        """Rings next when one of the two is due."""
        left = min(self.due, self.theirs) - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3))

    def ring(self, number: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        now = time.monotonic()
        if now >= self.due:
            self.due += self._delay.more()
        ours, theirs = now >= self.due, now >= self.theirs
        if ours:
            self.due = now + AGAIN
        if theirs:
            self.theirs = now + self.interval if self.interval else math.inf
        self.set()
        if theirs:
            self._hand_over(number, frame)
        if ours:
            raise TimeUp

    def _hand_over(self, number: int, frame: FrameType | None) -> None:
        if callable(self.handler):
            self.handler(number, frame)
        elif self.handler == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def put_back(self) -> None:
        """The user's own handler and timer, as far as that has come."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self.handler)
        if self.theirs < math.inf:
            left = max(self.theirs - time.monotonic(), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, self.interval)


@contextlib.contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    alarm = _Alarm(seconds)
    signal.signal(signal.SIGALRM, alarm.ring)
    alarm.set()
    try:
        yield
    finally:
        alarm.armed = False
        alarm.put_back()


@contextlib.contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    """Beside the main thread signals are not handled: another thread raises in this one."""
    over = threading.Event()
    lock = threading.Lock()
    wait = threading.Thread(
        target=_raise_in,
        args=(threading.get_ident(), seconds, over, lock, Delay(threading.get_native_id())),
        daemon=True,
    )
    wait.start()
    try:
        yield
    finally:
        with lock:  # from here on nothing is raised
            over.set()


def _raise_in(thread: int, seconds: float, over: threading.Event, lock: Any, delay: Delay) -> None:
    raises: Callable[..., Any] = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while not over.wait(seconds):
        seconds = delay.more()
        if seconds > 0.0:
            continue
        with lock:
            if not over.is_set():
                raises(ctypes.c_ulong(thread), ctypes.py_object(TimeUp))
        seconds = AGAIN
