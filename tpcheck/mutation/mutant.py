"""Mutants and the kill matrix: what shows that the checks can fail, and say why.

A `Mutant` is a correct candidate with one edit that makes it wrong. `tpcheck mutants` runs each
under the same search as any check and holds the evidence and the diagnosis against what was
expected of it.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tpcheck.errors import InvalidArgument
from tpcheck.ranks.zygote import die_with_parent
from tpcheck.spec import Check, Spec

if TYPE_CHECKING:
    from torch import Tensor

    from tpcheck.engines.engine import Engine
    from tpcheck.search.search import Options
    from tpcheck.spec import Candidate, Schedule


@dataclass(frozen=True, eq=False)
class Mutant:
    """One wrong candidate.

    Args:
        name: says the edit, as in `row_linear_without_all_reduce`.
        spec: what the correct candidate satisfies and this one does not.
        candidate: `build(case, mesh)`, a few lines over the correct one.
        mechanism: what is wrong, in a sentence.
        source: where it was seen: a document, a paper, a public issue; "–" where it is ours.
        shows_in: the kinds of evidence (`verdict.KINDS`) of which one must kill it.
        diagnosis: the codes of which one must be given.
        load: the candidate's own loader, where the loader is what is wrong.
        plan: the plan that the candidate is built by, as `Check` takes it.
        schedule: the candidate's own order of forwards and backwards, as `Check` takes it.
    """

    name: str
    spec: Spec
    candidate: Candidate
    mechanism: str
    source: str
    shows_in: tuple[str, ...]
    diagnosis: tuple[str, ...]
    load: Callable[[Any, Mapping[str, Tensor]], None] | None = None
    plan: Any = None
    schedule: Schedule | None = None

    @property
    def check(self) -> Check:
        """The check that must fail."""
        return Check(
            self.spec,
            self.candidate,
            name=self.name,
            load=self.load,
            communication=True,
            plan=self.plan,
            schedule=self.schedule,
        )


@dataclass(frozen=True)
class Row:
    """One mutant's fate."""

    mutant: str
    killed: bool
    kinds: tuple[str, ...]
    examples: int
    seconds: float
    case: str
    diagnosis: str
    expected: tuple[str, ...]
    message: str = ""

    @property
    def named(self) -> bool:
        """Whether the diagnosis is one of those expected."""
        return self.diagnosis in self.expected

    @property
    def misnamed(self) -> bool:
        """Whether a definite diagnosis is a wrong one."""
        return self.killed and not self.named and self.diagnosis != "unclassified"

    def to_dict(self) -> dict[str, Any]:
        return {
            "mutant": self.mutant,
            "killed": self.killed,
            "kinds": list(self.kinds),
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
            "case": self.case,
            "diagnosis": self.diagnosis,
            "expected": list(self.expected),
            "named": self.named,
        }


@dataclass
class Matrix:
    """All rows; survivors and misnamed ones first."""

    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def ordered(self) -> list[Row]:
        return sorted(self.rows, key=lambda r: (r.killed, not r.misnamed, r.named, r.mutant))

    def to_dict(self) -> dict[str, Any]:
        killed = [row for row in self.rows if row.killed]
        return {
            "mutants": len(self.rows),
            "killed": len(killed),
            "named": sum(row.named for row in killed),
            "misnamed": sum(row.misnamed for row in killed),
            "median_examples": statistics.median([r.examples for r in killed]) if killed else None,
            "seconds": round(self.seconds, 1),
            "rows": [row.to_dict() for row in self.ordered()],
        }


def kill(mutant: Mutant, engine: Engine, options: Options) -> Row:
    """Searches for a counterexample of one mutant."""
    from tpcheck.search.search import Search

    begun = time.monotonic()
    result = Search(mutant.check, engine, options).run()
    found = result.counterexample
    return Row(
        mutant=mutant.name,
        killed=found is not None,
        kinds=tuple(sorted({m.kind for m in found.mismatches})) if found else (),
        examples=found.found_after if found else result.examples,
        seconds=time.monotonic() - begun,
        case=found.case.describe() if found else "",
        diagnosis=found.diagnosis.code if found else "",
        expected=mutant.diagnosis,
        message=found.diagnosis.message if found else "",
    )


def matrix(
    mutants: Sequence[Mutant],
    start: Callable[[], Engine],
    options: Options,
    *,
    jobs: int = 1,
    finished: Callable[[Row], None] | None = None,
) -> Matrix:
    """The kill matrix of `mutants`.

    Args:
        start: makes an engine.
        jobs: how many mutants at a time, each in a process and on an engine of its own: while
            one's ranks wait for its driver, another's run.
        finished: is told of each.
    """
    begun = time.monotonic()
    out = Matrix()
    jobs = min(jobs, len(mutants))  # each is started, whether it is needed or not
    others = set(multiprocessing.active_children())
    forked = multiprocessing.get_context("fork")  # mutants are made of functions: they are not sent
    pool = ProcessPoolExecutor(jobs, forked, _begin, (mutants, start, options))
    try:
        rows = [pool.submit(_run_job, index) for index in range(len(mutants))]
        for done in as_completed(rows):
            out.rows.append(row := done.result())
            if finished:
                finished(row)
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()  # its ranks end with it
        if isinstance(error, BrokenProcessPool):
            reason = "a process that ran mutants was killed, perhaps for want of memory"
            raise InvalidArgument(f"{reason}; --jobs 1 needs the least of it") from None
        raise
    pool.shutdown()
    out.seconds = time.monotonic() - begun
    return out


_job: Callable[[int], Row]  # of a process of `matrix`


def _begin(mutants: Sequence[Mutant], start: Callable[[], Engine], options: Options) -> None:
    global _job
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    try:
        engine = start()
    except InvalidArgument as error:  # raised here it would be a broken pool
        _job = partial(_refuse, error)
        return
    multiprocessing.util.Finalize(None, engine.close, exitpriority=1)
    _job = partial(_kill_nth, mutants, engine, options)


def _kill_nth(mutants: Sequence[Mutant], engine: Engine, options: Options, index: int) -> Row:
    return kill(mutants[index], engine, options)


def _refuse(error: InvalidArgument, index: int) -> Row:
    raise error


def _run_job(index: int) -> Row:
    return _job(index)


def collect(modules: Iterable[Any]) -> list[Mutant]:
    """Every `Mutant` bound, or listed in a tuple, at the top of the modules; once each."""
    found: dict[str, Mutant] = {}
    for module in modules:
        for value in vars(module).values():
            for mutant in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(mutant, Mutant):
                    found.setdefault(mutant.name, mutant)
    return list(found.values())
