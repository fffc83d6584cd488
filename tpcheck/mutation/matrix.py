"""The kill matrix: each mutant under the same search as any check, several at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tpcheck.figures.kills import Matrix, Row
from tpcheck.mutant import Mutant
from tpcheck.report import reasons
from tpcheck.search.attempt import attempt
from tpcheck.search.options import Options
from tpcheck.search.session import Session
from tpcheck.workers.crew import Crew, lost
from tpcheck.workers.worker import Done, Failed, Opened, Start

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

#: Cases that a mutant's failure may cost to be made smaller, a third of a check's `SHRINK_CASES`.
#: It is there to be named, and nobody reads its case. With fewer, some would have another name. At
#: lower degrees it is not looked for: a larger one tells more factors apart. That it fails is known
#: by the first case, on ranks of its own; the smallest one needs none of its own.
SHRINK_CASES = 20


def options(examples: int, seed: int = 0) -> Options:
    """How mutants are searched: as checks are, for so many cases."""
    return Options(
        examples=examples,
        seed=seed,
        corpus=None,
        shrink_cases=SHRINK_CASES,
        lower_cases=0,
        few_ranks=True,  # most fail in their first case
        fresh=False,
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
    waiting = deque(range(len(mutants)))
    crew = Crew(min(jobs, len(mutants)), start, partial(_kill_nth, mutants, options))
    try:
        while len(out.rows) < len(mutants):
            for worker in crew.idle():
                if waiting:
                    worker.give(waiting.popleft())
            for row in _heard(crew, mutants):
                out.rows.append(row)
                if finished:
                    finished(row)
        crew.close()
    except BaseException:
        crew.kill()  # their ranks end with them
        raise
    out.seconds = time.monotonic() - begun
    return out


def _heard(crew: Crew, mutants: Sequence[Mutant]) -> Iterator[Row]:
    """The rows that have come. What was run by a process that was killed is not tried again."""
    for worker, message in crew.hear():
        match message:
            case None if not worker.opened:
                raise lost("mutants")
            case None:
                crew.replace(worker)
                if worker.job is not None:
                    yield _lost(mutants[worker.job])
            case Opened():
                worker.opened = True
            case Failed(error):
                raise error
            case Done(row):
                worker.job = None
                yield row


def _lost(mutant: Mutant) -> Row:
    return Row(
        mutant=mutant.name,
        killed=False,
        kinds=(),
        examples=0,
        seconds=0.0,
        case="",
        diagnosis="",
        expected=mutant.diagnosis,
        trouble=reasons.MUTANT_LOST,
    )


def _kill_nth(
    mutants: Sequence[Mutant], options: Options, session: Session, index: int, _: object
) -> Row:
    return kill(mutants[index], session.engine, options)
