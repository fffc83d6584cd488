"""The kill matrix: each mutant under the same search as any check, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tpcheck.figures.kills import Matrix, Row
from tpcheck.mutant import Mutant
from tpcheck.report import reasons
from tpcheck.search.attempt import attempt
from tpcheck.search.options import Options
from tpcheck.search.session import Session
from tpcheck.workers.jobs import InOrder, side_by_side
from tpcheck.workers.worker import Start

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
        finished: is told of each, in their order.

    Raises:
        Untrusted, InvalidArgument: as `jobs.side_by_side`.
    """
    begun = time.monotonic()
    run, work = _Run(mutants, finished), partial(_kill_nth, mutants, options)
    side_by_side(run, start, work, count=min(jobs, len(mutants)), what="mutants")
    return Matrix(run.rows, time.monotonic() - begun)


class _Run:
    """The jobs of a matrix: numbers of mutants."""

    def __init__(self, mutants: Sequence[Mutant], finished: Callable[[Row], None] | None) -> None:
        self.mutants, self.finished = mutants, finished
        self.rows: list[Row] = []
        self._left = iter(range(len(mutants)))
        self._order: InOrder[int, Row] = InOrder(self._tell)

    def next(self) -> int | None:
        index = next(self._left, None)
        return None if index is None else self._order.given(index)

    def ended(self, index: int, row: Row) -> None:
        self._order.ended(index, row)

    def lost(self, index: int, seconds: float) -> None:
        self.ended(index, _lost(self.mutants[index]))

    def _tell(self, index: int, row: Row) -> None:
        self.rows.append(row)
        if self.finished:
            self.finished(row)


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
        trouble=reasons.JOB_LOST,
    )


def _kill_nth(
    mutants: Sequence[Mutant], options: Options, session: Session, index: int, _: object
) -> Row:
    return kill(mutants[index], session.engine, options)
