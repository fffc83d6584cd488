"""`tpcheck verify`: checks are collected and run, one verdict per check."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpcheck.cli import signals
from tpcheck.cli.github import Github, annotate
from tpcheck.cli.options import (
    CorpusDir,
    Database,
    Examples,
    HtmlFile,
    JsonFile,
    JunitFile,
    Ranks,
    Seed,
    Targets,
    TimeLimit,
    Verbose,
    alone_if_sanitized,
    carried,
    chosen,
    corpus_of,
    duration,
    integers,
    whole_number,
)
from tpcheck.cli.run import Run
from tpcheck.engines.ahead import ahead
from tpcheck.errors import InvalidArgument
from tpcheck.search import files

if TYPE_CHECKING:
    from tpcheck.engines.ahead import Ahead
    from tpcheck.search.options import Options


_Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        help="Checks at a time; default: one per rank's core.",
        callback=alone_if_sanitized,
        **whole_number(1),
    ),
]


def verify(
    targets: Targets = None,
    engine: Annotated[
        str, typer.Option("--engine", help="gloo, nccl, gloo-cuda, threads or torchrun.")
    ] = "gloo",
    tp: Annotated[str, typer.Option(help="TP degrees, as in 2,4.")] = "2,4",
    dtype: Annotated[str, typer.Option(help="Dtypes to draw.")] = "float64,float32,bfloat16",
    examples: Examples = 20,
    seed: Seed = 0,
    time_budget: Annotated[str | None, typer.Option(help="For all checks: 90s, 2m.")] = None,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    jobs: _Jobs = None,
    json: JsonFile = None,
    junit: JunitFile = None,
    html: HtmlFile = None,
    corpus: CorpusDir = None,
    database: Database = None,
    github: Github = False,
    verbose: Verbose = False,
) -> None:
    """Collects Check objects, runs them, prints one verdict per check."""
    _apart(json, junit, html)
    if _follows(engine):
        return
    asked: dict[str, Any] = {"examples": examples, "seed": seed, "degrees": integers(tp, "--tp")}
    seconds = None if time_budget is None else duration(time_budget)
    named = chosen(targets)
    reported = bool(json or junit or html or github)
    doubts, preload = _doubts(named, reported), files.heavy_imports(named)
    run = Run(seed=seed, engine=engine, ranks=ranks or 0, jobs=jobs or 0, verbose=verbose)
    try:
        with (
            signals.as_interrupt(),
            ahead("" if doubts or (jobs or 1) > 1 else engine, preload) as first,
        ):
            with signals.loading():
                from tpcheck.report import machine  # noqa: F401 - what `tell` needs
                from tpcheck.search.collect import collect
                from tpcheck.search.options import Options
                from tpcheck.search.session import open_session  # noqa: F401 - torch
            options = Options(
                **asked,
                dtypes=tuple(dtype.split(",")),
                time_budget=seconds,
                corpus=corpus_of(corpus, database),
                kinds=verbose or html is not None,
            )
            with _reported(run, reported):
                if doubts:
                    collect(named, {})  # where nothing imports no engine is started
                _run(run, named, options, time_limit, preload, first)
    except KeyboardInterrupt:
        run.stop()
    reports = run.report(json, junit, html, github)
    run.tell()
    if github:
        annotate(run.results, run.undecided)
    reports.end(signals.exit_code() if run.stopped else run.exit_code)


def _doubts(named: Sequence[str], reported: bool) -> list[str]:
    """Why importing is likely to fail. What no file of parses is a report's, where there is one."""
    try:
        return files.look(named)
    except files.NothingParses as error:
        if reported:
            return [str(error)]
        raise


@contextlib.contextmanager
def _reported(run: Run, reported: bool) -> Iterator[None]:
    """Where nothing imports in the block, the run has what its reports are to say, if it has
    any."""
    from tpcheck.search.collect import NothingImports

    try:
        yield
    except NothingImports as error:
        if not reported:
            raise
        run.set_aside(error.aside)


def _run(
    run: Run,
    targets: Sequence[str],
    options: Options,
    time_limit: float,
    preload: Sequence[str],
    first: Ahead | None,
) -> None:
    """On ranks that are as many as `run` says, or as the degrees need."""
    from tpcheck.engines import ranks_for
    from tpcheck.engines.launch import launch
    from tpcheck.search.session import open_session

    if run.engine == "torchrun":
        _require_launch(run, launch().size, options.degrees)
    run.ranks = run.ranks or ranks_for(options.degrees, run.engine)
    _require_ranks(run.ranks, targets, options)
    opened = partial(open_session, run.engine, run.ranks, time_limit=time_limit, confirm=True)
    run.jobs = run.jobs or carried(run.engine, run.ranks, partial(_count, targets))
    if run.jobs > 1:
        if first is not None:
            first.end()  # each process has its own
        run.side_by_side(opened, preload, targets, options)
        return
    with opened(preload=preload, ahead=first) as session:
        run.go(session, targets, options)


def _require_ranks(ranks: int, targets: Sequence[str], options: Options) -> None:
    """Raises where there are too few for the degrees; where all checks have their own, as kernels
    have, for those."""
    from tpcheck.search.collect import collect
    from tpcheck.space import Space

    try:
        Space(options.degrees, options.dtypes, ranks)
    except InvalidArgument:
        own = {degree for check in collect(targets, {}) for degree in check.spec.degrees or (0,)}
        if 0 in own or max(own, default=0) > ranks:
            raise
        Space(tuple(own), options.dtypes, ranks)


def _count(targets: Sequence[str]) -> int:
    """How many checks there are."""
    from tpcheck.search.collect import collect

    return len(collect(targets, {}))


def _require_launch(run: Run, size: int, degrees: Sequence[int]) -> None:
    """The world is all processes of a launch, `size` of them, and there is one."""
    if run.jobs > 1:
        raise InvalidArgument("--jobs is 1 with --engine torchrun: a launch has one set of ranks")
    if run.ranks not in (0, size):
        raise InvalidArgument(
            f"--ranks {run.ranks}: the launcher has started {size}, and --engine torchrun takes "
            "all of them"
        )
    if degrees and max(degrees) > size:
        raise InvalidArgument(
            f"tp degree {max(degrees)} needs {max(degrees)} ranks and the launcher has started "
            f"{size}; start more, or give --tp {size}"
        )
    run.ranks = size


def _follows(engine: str) -> bool:
    """Whether this is a process of a launch that does what the first one says; it has done by
    then."""
    from tpcheck.engines import launch

    if engine != "torchrun":
        if (launcher := launch.launched_by()) is not None:
            raise InvalidArgument(
                f"{launch.several(launcher)}; give --engine torchrun, and they are its ranks"
            )
        return False
    own = launch.launch()
    if own.rank == 0:
        return False
    from tpcheck.engines.agent import follow

    follow(own)
    return True


def _apart(json: Path | None, junit: Path | None, html: Path | None) -> None:
    """Two reports in one file would be one; a device or a pipe takes both."""
    given = {"--json": json, "--junit": junit, "--html": html}
    for (one, first), (other, second) in combinations(given.items(), 2):
        same = first and second and os.path.realpath(first) == os.path.realpath(second)
        if first and same and (first.is_file() or not first.exists()):
            raise InvalidArgument(f"{one} and {other} are both {first}: give two files")
