"""The kill matrix: each mutant under the same search as any check, several at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING

from tpcheck.errors import ENDING, InvalidArgument, TpcheckError
from tpcheck.figures.kills import Matrix, Row
from tpcheck.mutant import Mutant
from tpcheck.process.lineage import die_with
from tpcheck.search.attempt import attempt
from tpcheck.search.options import Options
from tpcheck.search.session import Session

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

#: Cases that a mutant's failure may cost to be made smaller, a third of a check's `SHRINK_CASES`.
#: It is there to be named, and nobody reads its case. With fewer, some would have another name.
SHRINK_CASES = 20

Start = Callable[[], contextlib.AbstractContextManager[Session]]


def options(examples: int, seed: int = 0) -> Options:
    """How mutants are searched: as checks are, for so many cases."""
    return Options(
        examples=examples,
        seed=seed,
        corpus=None,
        shrink_cases=SHRINK_CASES,
        few_ranks=True,  # most fail in their first case
    )


def kill(mutant: Mutant, engine: Engine, options: Options) -> Row:
    """Searches for a counterexample of one mutant. One that can't run is told in its row."""
    begun = time.monotonic()
    result = attempt(mutant.check, Session(engine), options)
    found = result.counterexample
    return Row(
        mutant=mutant.name,
        killed=found is not None,
        kinds=tuple(sorted({m.kind.value for m in found.mismatches})) if found else (),
        examples=found.found_after if found else result.examples,
        seconds=time.monotonic() - begun,
        case=found.case.describe() if found else "",
        diagnosis=found.diagnosis.code if found else "",
        expected=mutant.diagnosis,
        message=found.diagnosis.message if found else "",
        trouble=result.reason if result.trouble else None,
    )


def kill_all(
    mutants: Sequence[Mutant],
    start: Start,
    options: Options,
    *,
    jobs: int = 1,
    finished: Callable[[Row], None] | None = None,
) -> Matrix:
    """The kill matrix of `mutants`.

    Args:
        start: opens a session.
        jobs: how many mutants at a time, each in a process and a session of its own: while one's
            ranks wait for its driver, another's run.
        finished: is told of each.

    Raises:
        Untrusted: the canary was not found in one of the sessions.
        InvalidArgument: a session can't be opened, or one of the processes was killed.
    """
    begun = time.monotonic()
    out = Matrix()
    jobs = min(jobs, len(mutants))  # each is started, whether it is needed or not
    others = set(multiprocessing.active_children())
    forked = multiprocessing.get_context("fork")  # mutants are made of functions: they are not sent
    pool = ProcessPoolExecutor(jobs, forked, _begin, (os.getpid(), mutants, start, options))
    try:
        with _blocked():  # the processes are forked with the first one
            rows = [pool.submit(_run_job, index) for index in range(len(mutants))]
        for done in as_completed(rows):
            out.rows.append(row := done.result())
            if finished:
                finished(row)
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # its ranks end with it
        if isinstance(error, BrokenProcessPool):
            reason = "a process that ran mutants was killed, perhaps for want of memory"
            raise InvalidArgument(f"{reason}; --jobs 1 needs the least of it") from None
        raise
    pool.shutdown()
    out.seconds = time.monotonic() - begun
    return out


#: Of a process of `kill_all`: number of a mutant → its row. A global, since a pool's processes keep
#: nothing else between jobs, and a mutant, made of functions, can't be sent with one.
_job: Callable[[int], Row]


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Signals that end a run come after the block. A process that is forked in it begins with them
    blocked, and would else hear them as its parent does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, mutants: Sequence[Mutant], start: Start, options: Options) -> None:
    global _job
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # the parent's way is not this one's
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    closing = contextlib.ExitStack()
    try:
        session = closing.enter_context(start())
        session.require_trust()
    except TpcheckError as error:  # raised here it would be a broken pool
        closing.close()
        _job = partial(_refuse, error)
        return
    multiprocessing.util.Finalize(None, closing.close, exitpriority=1)
    _job = partial(_kill_nth, mutants, session.engine, options)


def _kill_nth(mutants: Sequence[Mutant], engine: Engine, options: Options, index: int) -> Row:
    return kill(mutants[index], engine, options)


def _refuse(error: TpcheckError, index: int) -> Row:
    raise error


def _run_job(index: int) -> Row:
    return _job(index)
