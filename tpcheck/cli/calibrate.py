"""`tpcheck calibrate`: what the bounds are worth."""

from __future__ import annotations

import json as json_
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpcheck.cli import signals
from tpcheck.cli.checks import checks_of
from tpcheck.cli.options import (
    CorpusDir,
    Engine,
    Jobs,
    JsonFile,
    Ranks,
    Seed,
    TimeLimit,
    at_once,
    chosen,
    duration,
    integers,
    path,
    whole_number,
)
from tpcheck.cli.reports import Reports
from tpcheck.cli.say import say
from tpcheck.cli.streams import complain
from tpcheck.errors import TROUBLE, InvalidArgument, shown
from tpcheck.search import files

if TYPE_CHECKING:
    from tpcheck.calibrate.sensitivity import Measurement, Subject
    from tpcheck.check import Check
    from tpcheck.figures.alarms import Summary
    from tpcheck.workers.worker import Start

calibrate = typer.Typer(
    name="calibrate",
    help="Measures the bounds: false alarms on correct candidates, and the smallest faults seen.",
    no_args_is_help=True,
)
DTYPES = "float64,float32,bfloat16,float16"


@calibrate.command()
def alarms(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE_OR_DIR[::NAME] ...]", help="Checks of correct candidates: properties/."
        ),
    ] = None,
    cases: Annotated[
        int,
        typer.Option(help="Cases in all, those of earlier runs included.", **whole_number(1)),
    ] = 400,
    engine: Engine = "gloo",
    tp: Annotated[str, typer.Option(help="TP degrees.")] = "1,2,3,4,8",
    dtype: Annotated[str, typer.Option(help="Dtypes to draw.")] = DTYPES,
    seed: Seed = 0,
    time_budget: Annotated[
        str | None, typer.Option(help="Stop after 90s, 10m; go on later.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(parser=path, help="Where finished cases are noted: .tpcheck/campaign.jsonl."),
    ] = None,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    json: JsonFile = None,
    corpus: CorpusDir = None,
    jobs: Jobs = None,
) -> None:
    """Random cases of correct candidates: alarms, and how much of the bounds is used.

    Goes on where an earlier run with the same options stopped. A case that fails is kept for
    `tpcheck replay`. Exit code 1 where any did.
    """
    named = chosen(targets)
    files.look(named)
    with signals.loading():
        from tpcheck.calibrate.campaign import Campaign
        from tpcheck.calibrate.state import STATE, Grid, State
        from tpcheck.engines import ranks_for
        from tpcheck.report import calibration, machine
        from tpcheck.search.corpus import Corpus
        from tpcheck.space import Space

    until = None if time_budget is None else time.monotonic() + duration(time_budget)
    grid = Grid(integers(tp, "--tp"), tuple(dtype.split(",")), seed)
    size = ranks or ranks_for(grid.degrees, engine)
    Space(grid.degrees, grid.dtypes, size)
    aside: dict[str, str] = {}
    checks, start = _prepared(named, engine, size, time_limit, aside)
    campaign = Campaign(checks, State(state or STATE, grid), Corpus(corpus))
    asked: dict[str, Any] = {"until": until}
    asked["finished"] = lambda unit: say(calibration.unit(unit))
    try:
        with signals.as_interrupt():
            if (count := at_once(jobs, engine)) > 1:
                summary = campaign.run_side_by_side(start, count, cases, **asked)
            else:
                with start() as session:
                    session.require_trust()
                    summary = campaign.run(session, cases, **asked)
    except KeyboardInterrupt:  # what was found is not lost
        so_far = campaign.summary().to_dict() | {"troubled": aside | campaign.troubled}
        Reports().write(json, lambda: machine.dumps(so_far))
        raise
    _tell(summary, aside, campaign.troubled, json)


def _prepared(
    targets: Sequence[str], engine: str, ranks: int, time_limit: float, aside: dict[str, str]
) -> tuple[list[Check], Start]:
    """The checks that can run here (the others are told of), and what opens a session for them.
    Files that do not import, and why, are put `aside`."""
    from tpcheck.engines import require
    from tpcheck.search.session import open_session, preload_of

    require(engine, ranks)
    checks = checks_of(targets, aside)
    preload = {*files.heavy_imports(targets), *preload_of(checks)}
    about: dict[str, Any] = {"time_limit": time_limit, "preload": preload, "confirm": True}
    return checks, partial(open_session, engine, ranks, **about)


def _tell(
    summary: Summary, aside: dict[str, str], later: dict[str, str], json: Path | None
) -> None:
    """Writes and prints what a campaign came to, and ends the command.

    Args:
        aside: files that do not import, which was said.
        later: checks that turned out not to run.
    """
    from tpcheck.report import calibration, machine, text

    reports, troubled = Reports(), aside | later
    reports.write(json, lambda: machine.dumps(summary.to_dict() | {"troubled": troubled}))
    for name, reason in later.items():
        say(text.undecided(name, reason))
    say("\n" + calibration.campaign(summary))
    if troubled and not summary.alarms:
        complain(text.together(troubled))
    reports.end(1 if summary.alarms else TROUBLE if troubled else 0)


@calibrate.command()
def sensitivity(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE::NAME]",
            help="A check of a correct candidate; default: a row linear and a stack of 4 blocks.",
        ),
    ] = None,
    dims: Annotated[
        str | None, typer.Option(metavar="JSON", help="The dims at which it is measured.")
    ] = None,
    engine: Engine = "gloo",
    tp: Annotated[str, typer.Option(help="TP degrees.")] = "2,4,8",
    dtype: Annotated[str, typer.Option(help="Dtypes.")] = DTYPES,
    runs: Annotated[int, typer.Option(help="Seeds per cell.", **whole_number(1))] = 100,
    seed: Seed = 0,
    time_limit: TimeLimit = 30.0,
    json: JsonFile = None,
    jobs: Jobs = None,
) -> None:
    """The smallest relative error on one rank's partial sum that is found 99 times in 100."""
    if (target is None) != (dims is None):
        raise InvalidArgument("give a check and its --dims together, or neither")
    sizes = {} if target is None else parsed(dims)
    files.look([] if target is None else [target])
    with signals.loading():
        from tpcheck.calibrate.sensitivity import SUBJECTS, Measurement, Subject
        from tpcheck.report import calibration, machine, text
        from tpcheck.space import Space

    subjects = SUBJECTS if target is None else (Subject(target, target, sizes),)
    degrees, dtypes = integers(tp, "--tp"), tuple(dtype.split(","))
    Space(degrees, dtypes, max(degrees))
    checks, start = _those_of(subjects, engine, max(degrees), time_limit)
    measurement = Measurement(
        subjects,
        checks,
        degrees=degrees,
        dtypes=dtypes,
        runs=runs,
        seed=seed,
        finished=lambda row: say(calibration.threshold(row)),
        failed=lambda title, why: say(text.undecided(title, why)),
    )
    _measure(measurement, start, at_once(jobs, engine))
    rows, troubled = measurement.rows, measurement.troubled
    reports = Reports()
    report = {"runs": runs, "seed": seed, "thresholds": [row.to_dict() for row in rows]}
    reports.write(json, lambda: machine.dumps(report | {"troubled": troubled}))
    say("\n" + calibration.sensitivity(rows))
    if troubled:
        complain(text.together(troubled))
    reports.end(TROUBLE if troubled else 0)


def _measure(measurement: Measurement, start: Start, jobs: int) -> None:
    if jobs > 1:
        measurement.run_side_by_side(start, jobs)
        return
    with start() as session:
        session.require_trust()
        measurement.run(session)


def _those_of(
    subjects: Sequence[Subject], engine: str, ranks: int, time_limit: float
) -> tuple[list[Check], Start]:
    """The check of each subject, and what opens a session for them.

    Raises:
        InvalidArgument: there is none, or it can't run here.
    """
    from tpcheck.engines import require
    from tpcheck.search.collect import collect, runnable
    from tpcheck.search.session import open_session, preload_of

    require(engine, ranks)
    checks: list[Check] = []
    for subject in subjects:
        able, absent = runnable(collect([subject.target]))
        if not able:
            reason = "; ".join(absent.values())
            raise InvalidArgument(f"{subject.target} can't run here: {reason}")
        checks.append(able[0])
    preload = {*files.heavy_imports(subject.target for subject in subjects), *preload_of(checks)}
    start = partial(open_session, engine, ranks, time_limit=time_limit, preload=preload)
    return checks, start


def parsed(text: str | None) -> dict[str, Any]:
    """`{"seq": 8}` → a mapping."""
    try:
        found = json_.loads(text or "")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"--dims {shown(text)} is not a JSON object, such as '{{\"seq\": 8}}'"
        )
    return found
