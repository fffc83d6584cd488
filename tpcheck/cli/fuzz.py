"""`tpcheck fuzz`: looks for counterexamples of many checks, for as long as one likes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tpcheck.cli import signals
from tpcheck.cli.checks import checks_of
from tpcheck.cli.options import (
    CorpusDir,
    Database,
    Engine,
    JsonFile,
    Ranks,
    Seed,
    Targets,
    TimeLimit,
    chosen,
    corpus_of,
    duration,
    integers,
    path,
    whole_number,
)
from tpcheck.cli.reports import Reports
from tpcheck.cli.say import say
from tpcheck.cli.streams import complain, say_faults
from tpcheck.errors import TROUBLE
from tpcheck.process.cores import cores
from tpcheck.search import files
from tpcheck.vocabulary import ON_GPUS

if TYPE_CHECKING:
    from tpcheck.check import Check
    from tpcheck.cli.view import View
    from tpcheck.fuzz.hunting import Hunting
    from tpcheck.fuzz.turn import Subject
    from tpcheck.search.options import Options
    from tpcheck.workers.worker import Start

For = Annotated[
    str | None,
    typer.Option("--for", help="90s, 30m, 2h; default: until interrupted.", metavar="TIME"),
]
Turns = Annotated[
    int | None,
    typer.Option(
        help="Turns to give, in place of a time; findings are then made smaller.",
        **whole_number(1),
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Processes; default: one per core, one on a GPU.", **whole_number(1)),
]
StateDir = Annotated[
    Path | None,
    typer.Option("--state", parser=path, metavar="FOLDER", help="Where a later run goes on from."),
]


def fuzz(
    targets: Targets = None,
    time: For = None,
    turns: Turns = None,
    jobs: Jobs = None,
    engine: Engine = "gloo",
    tp: Annotated[str, typer.Option(help="TP degrees, as in 2,4.")] = "2,4",
    dtype: Annotated[str, typer.Option(help="Dtypes to draw.")] = "float64,float32,bfloat16",
    seed: Seed = 0,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    json: JsonFile = None,
    corpus: CorpusDir = None,
    database: Database = None,
    state: StateDir = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier runs.")] = False,
) -> None:
    """Looks for counterexamples of many checks on all cores, for as long as one likes."""
    bound = Bound(None if time is None else duration(time, "--for"), turns)
    named = chosen(targets)
    files.look(named)
    with signals.loading():
        from tpcheck.case import MOST_RANKS
        from tpcheck.cli.view import View
        from tpcheck.search.options import Options
        from tpcheck.space import Space

    options = Options(
        seed=seed,
        degrees=integers(tp, "--tp"),
        dtypes=tuple(dtype.split(",")),
        corpus=corpus_of(corpus, database),
    )
    Space(options.degrees, options.dtypes, MOST_RANKS)
    at_once = jobs or (1 if engine in ON_GPUS else cores())
    view = View()
    aside: dict[str, str] = {}
    subjects, start, size = _prepared(named, options, engine, ranks, time_limit, aside)
    about: dict[str, Any] = {"ranks": size, "time_limit": time_limit, "aside": aside}
    hunting = _hunting(subjects, options, state, fresh, view, **about)
    _run(hunting, view, at_once, start, bound)
    _tell(hunting, json)


@dataclass(frozen=True)
class Bound:
    """How long a run is; without either, until it is interrupted."""

    seconds: float | None
    turns: int | None


def _prepared(
    targets: Sequence[str],
    options: Options,
    engine: str,
    ranks: int | None,
    time_limit: float,
    aside: dict[str, str],
) -> tuple[list[Subject], Start, int]:
    """The checks that can run here (the others are told of), what opens a worker's session, and how
    many ranks that has. Files that do not import, and why, are put `aside`."""
    from tpcheck.engines import require
    from tpcheck.fuzz.turn import Subject
    from tpcheck.search.addresses import address
    from tpcheck.search.session import open_session, preload_of
    from tpcheck.space import Space

    checks = checks_of(targets, aside)
    size = ranks or max((_ranks(check, options, engine) for check in checks), default=1)
    require(engine, size)
    for check in checks:
        Space(tuple(check.spec.degrees or options.degrees), options.dtypes, size)
    preload = {*files.heavy_imports(targets), *preload_of(checks)}
    start = partial(
        open_session, engine, size, time_limit=time_limit, preload=preload, confirm=True
    )
    titles = Counter(check.title for check in checks)
    subjects = [
        Subject(address(check) or check.title, check, titles[check.title] > 1) for check in checks
    ]
    return subjects, start, size


def _ranks(check: Check, options: Options, engine: str) -> int:
    """How many a check needs: two for a kernel, which runs on one, since the canary has two; one
    where there is a GPU for no more."""
    from tpcheck.engines import ranks_for

    degrees = check.spec.degrees
    return ranks_for(degrees or options.degrees, engine)


def _hunting(
    subjects: Sequence[Subject],
    options: Options,
    state: Path | None,
    fresh: bool,
    view: View,
    **about: Any,
) -> Hunting:
    """The run, and in a line what it goes on from."""
    from tpcheck.fuzz.hunting import Hunting, Listener
    from tpcheck.fuzz.state import PLACE, State
    from tpcheck.report import hunted as report

    listener = Listener(view.found, view.gone, view.said, view.moment)
    there = State(state or PLACE, fresh=fresh)
    hunting = Hunting(subjects, options, there, listener=listener, **about)
    again = sum(len(standing.again) for standing in hunting.checks)
    if hunting.so_far().cases or again:
        say(report.going_on(hunting.so_far(), again=again))
    return hunting


def _run(hunting: Hunting, view: View, jobs: int, start: Start, bound: Bound) -> None:
    """Until its bound, or a signal; then its workers have ended."""
    from tpcheck.fuzz.turn import Turns
    from tpcheck.report import reasons
    from tpcheck.workers.crew import Crew

    subjects = [standing.subject for standing in hunting.checks]
    work = Turns(subjects, hunting.options, hunting.corpus, hunting.state.choices).take
    crew: Crew | None = None
    try:
        with signals.as_interrupt():
            crew = Crew(jobs, start, work)
            with view:
                hunting.run(crew, seconds=bound.seconds, turns=bound.turns)
            crew.close()
    except BaseException as error:
        if crew is not None:
            crew.kill()
        if not isinstance(error, KeyboardInterrupt):
            raise
        hunting.reason = reasons.fuzz_interrupted(hunting.so_far().ran)


def _tell(hunting: Hunting, json: Path | None) -> NoReturn:
    """The report first, then the same for people."""
    from tpcheck.report import hunted as report
    from tpcheck.report import machine, text

    hunted = hunting.so_far()
    reports = Reports()
    reports.write(json, lambda: machine.dumps(hunted.to_dict()))
    if hunted.findings:
        say("\n" + report.pages(hunted))
    say("\n" + report.sums(hunted))
    if hunted.exit_code == TROUBLE:
        complain(text.together(report.troubles(hunted)))
    say_faults(row.fault for row in hunted.rows)
    reports.end(signals.exit_code() if hunting.reason else hunted.exit_code)
