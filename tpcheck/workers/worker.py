"""A worker: a process forked from the driver, which opens a session and does one job after the
other. It inherits what jobs are about (checks are made of functions, which can't be sent); jobs and
what they come to are sent. It ends with the driver, however that ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tpcheck.comms import frames
from tpcheck.engines.hosts import opened
from tpcheck.errors import ENDING, TpcheckError
from tpcheck.process import exits
from tpcheck.process.lineage import die_with
from tpcheck.search.session import Session

Start = Callable[[], contextlib.AbstractContextManager[Session]]
#: (session, job, told) → what the job comes to; `told` is given what is to be said on the way.
Work = Callable[[Session, Any, Callable[[Any], None]], Any]

#: Seconds that a worker has to end by itself once it is told to. It puts its ranks away in less
#: than one; with fewer, those of a busy machine are killed, which leaves files for a sweep.
PATIENCE = 10.0


@dataclass(frozen=True)
class Opened:
    """The session is open, and is trusted."""


@dataclass(frozen=True)
class Refused:
    """There is no session, or it is not trusted."""

    error: TpcheckError


@dataclass(frozen=True)
class Told:
    """Said on the way; the job goes on."""

    what: Any


@dataclass(frozen=True)
class Done:
    """The job has ended."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The job raised, which it should not."""

    error: BaseException


Message = Opened | Refused | Told | Done | Failed


class Worker:
    """One process, to be made while signals are `blocked`.

    Args:
        start: opens its session.
        work: does a job.
    """

    def __init__(self, start: Start, work: Work) -> None:
        forked = multiprocessing.get_context("fork")
        self.pipe, theirs = forked.Pipe()
        self.job: Any = None  # what it works at
        self.opened = False  # whether it has said so
        arguments = (os.getpid(), theirs, start, work)
        self.process = forked.Process(target=_live, args=arguments)
        self.process.start()
        theirs.close()
        self._end, _ = opened(self.process.pid or 0)  # readable once the process has ended

    def give(self, job: Any) -> None:
        """A job, to a worker that has none. One that has ended is noticed by who waits for it."""
        self.job = job
        with contextlib.suppress(OSError):
            self.pipe.send(job)

    def news(self) -> list[Any]:
        """What to wait on for what it says, and for its end: what a reference has forked there may
        live on, and hold its end of the pipe."""
        return [self.pipe] if self._end is None else [self.pipe, self._end]

    def heard(self) -> Message | None:
        """What it says, which is there; None where the process has ended."""
        try:
            if self._end is not None and not self.pipe.poll():
                return None
            message: Message = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def dismiss(self) -> None:
        """It is to end, by itself, once its job is done; nobody waits."""
        with contextlib.suppress(OSError):
            self.pipe.send(None)

    def kill(self) -> None:
        """Its ranks end with it."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        if self._end is not None:
            os.close(self._end)
            self._end = None

    def bury(self) -> None:
        """Waits for one that was dismissed."""
        self.process.join(PATIENCE)
        self.kill()


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Signals that end a run come after the block. A process that is forked in it begins with them
    blocked, and would else hear them as its parent does.

    Another thread of this process, which does not block them, may be the one that they reach, and
    Python calls their handlers in the main thread all the same. These only note them meanwhile.
    """
    came: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    main = threading.current_thread() is threading.main_thread()
    heard = {number: signal.getsignal(number) for number in ENDING} if main else {}
    ours = {number: way for number, way in heard.items() if callable(way)}
    try:
        for number in ours:
            signal.signal(number, lambda which, _: came.append(which))
        yield
    finally:
        for number, way in ours.items():
            signal.signal(number, way)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each in dict.fromkeys(came):
            signal.raise_signal(each)


def begin(parent: int) -> None:
    """A forked process becomes one of its own: it hears of signals what a worker has to."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # the parent's way is not this one's
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _live(parent: int, pipe: Connection, start: Start, work: Work) -> None:
    begin(parent)
    with exits.refused(), contextlib.suppress(EOFError, OSError):  # the driver has gone
        try:
            with start() as session:
                session.require_trust()
                pipe.send(Opened())
                while (job := pipe.recv()) is not None:
                    pipe.send(_done(session, job, work, pipe))
        except TpcheckError as error:
            pipe.send(Refused(error))


def _done(session: Session, job: Any, work: Work, pipe: Connection) -> Message:
    try:
        return Done(work(session, job, lambda what: pipe.send(Told(what))))
    except Exception as error:
        return Failed(_that_can_be_sent(error))


def _that_can_be_sent(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(frames.in_a_line(error))
    return error
