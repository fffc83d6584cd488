"""`tpcheck calibrate`: what the bounds are worth."""

from __future__ import annotations

import json as json_
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpcheck.cli import signals
from tpcheck.cli.console import complain, console
from tpcheck.cli.options import (
    PROPERTIES,
    CorpusDir,
    Engine,
    JsonFile,
    Ranks,
    Seed,
    TimeLimit,
    duration,
    integers,
    path,
    whole_number,
)
from tpcheck.cli.reports import Reports
from tpcheck.errors import TROUBLE, InvalidArgument, let_through, shown
from tpcheck.search import files

if TYPE_CHECKING:
    from tpcheck.calibrate.campaign import Campaign
    from tpcheck.calibrate.sensitivity import Subject
    from tpcheck.calibrate.state import State
    from tpcheck.check import Check
    from tpcheck.figures.alarms import Summary
    from tpcheck.figures.thresholds import Threshold
    from tpcheck.search.session import Session

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
) -> None:
    """Random cases of correct candidates: alarms, and how much of the bounds is used.

    Goes on where an earlier run with the same options stopped. A case that fails is kept for
    `tpcheck replay`. Exit code 1 where any did.
    """
    chosen = targets or PROPERTIES
    doubts = files.look(chosen)
    with signals.loading():
        from tpcheck.calibrate.state import STATE, Grid, State
        from tpcheck.engines import ranks_for
        from tpcheck.report import calibration, machine
        from tpcheck.search.collect import collect
        from tpcheck.search.session import open_session
        from tpcheck.space import Space

    until = None if time_budget is None else time.monotonic() + duration(time_budget)
    grid = Grid(integers(tp, "--tp"), tuple(dtype.split(",")), seed)
    size = ranks or ranks_for(grid.degrees, engine)
    Space(grid.degrees, grid.dtypes, size)
    preload = files.heavy_imports(chosen)
    if doubts:
        collect(chosen)  # what does not import starts no engine
    with open_session(
        engine, size, time_limit=time_limit, preload=preload, confirm=True
    ) as session:
        campaign = _campaign(session, chosen, lambda: State(state or STATE, grid), corpus)
        try:
            with signals.as_interrupt():
                summary = campaign.run(
                    cases, until=until, finished=lambda unit: console.print(calibration.unit(unit))
                )
        except KeyboardInterrupt:  # what was found is not lost
            Reports().write(json, lambda: machine.dumps(campaign.summary().to_dict()))
            raise
    _tell(summary, campaign.troubled, json)


def _tell(summary: Summary, troubled: dict[str, str], json: Path | None) -> None:
    """Writes and prints what a campaign came to, and ends the command."""
    from tpcheck.report import calibration, machine, text

    reports = Reports()
    reports.write(json, lambda: machine.dumps(summary.to_dict() | {"troubled": troubled}))
    for name, reason in troubled.items():
        console.print(text.undecided(name, reason))
    console.print("\n" + calibration.campaign(summary))
    if troubled and not summary.alarms:
        complain(text.together(troubled))
    reports.end(1 if summary.alarms else TROUBLE if troubled else 0)


def _campaign(
    session: Session, targets: Sequence[str], state: Callable[[], State], corpus: Path | None
) -> Campaign:
    """The campaign over the checks that can run here; the others are told of."""
    from tpcheck.calibrate.campaign import Campaign
    from tpcheck.report import text
    from tpcheck.search.corpus import Corpus

    session.require_trust()
    checks = session.collect(targets)
    for name, reason in session.skipped.items():
        console.print(text.skipped(name, reason))
    return Campaign(checks, session.engine, state(), Corpus(corpus), session.confirm)


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
) -> None:
    """The smallest relative error on one rank's partial sum that is found 99 times in 100."""
    if (target is None) != (dims is None):
        raise InvalidArgument("give a check and its --dims together, or neither")
    sizes = {} if target is None else parsed(dims)
    files.look([] if target is None else [target])
    with signals.loading():
        from tpcheck.calibrate.sensitivity import SUBJECTS, Subject
        from tpcheck.report import calibration, machine, text
        from tpcheck.search.collect import collect
        from tpcheck.search.session import open_session
        from tpcheck.space import Space

    subjects = SUBJECTS if target is None else (Subject(target, target, sizes),)
    degrees, dtypes = integers(tp, "--tp"), tuple(dtype.split(","))
    Space(degrees, dtypes, max(degrees))
    chosen = [subject.target for subject in subjects]
    preload = files.heavy_imports(chosen)
    if files.look(chosen):
        collect(chosen)  # what does not import starts no engine
    asked = {"degrees": degrees, "dtypes": dtypes, "runs": runs, "seed": seed}
    with open_session(engine, max(degrees), time_limit=time_limit, preload=preload) as session:
        rows, troubled = _measured(subjects, session, asked)
    reports = Reports()
    report = {"runs": runs, "seed": seed, "thresholds": [row.to_dict() for row in rows]}
    reports.write(json, lambda: machine.dumps(report | {"troubled": troubled}))
    console.print("\n" + calibration.sensitivity(rows))
    if troubled:
        complain(text.together(troubled))
    reports.end(TROUBLE if troubled else 0)


def _measured(
    subjects: Sequence[Subject], session: Session, asked: dict[str, Any]
) -> tuple[list[Threshold], dict[str, str]]:
    """What was measured, and why the others could not be: subject → reason."""
    from tpcheck.calibrate.sensitivity import measure
    from tpcheck.report import calibration, text
    from tpcheck.search.trouble import why

    rows: list[Threshold] = []
    troubled: dict[str, str] = {}

    def finished(row: Threshold) -> None:
        rows.append(row)
        console.print(calibration.threshold(row))

    checks = [_check(subject, session) for subject in subjects]
    session.require_trust()
    for subject, check in zip(subjects, checks, strict=True):
        try:
            measure(subject, check, session.engine, finished=finished, **asked)
        except BaseException as error:  # of one check: the others go on
            let_through(error)
            troubled[subject.title] = why(error)
            console.print(text.undecided(subject.title, troubled[subject.title]))
    return rows, troubled


def _check(subject: Subject, session: Session) -> Check:
    """The subject's check.

    Raises:
        InvalidArgument: there is none, or it can't run here.
    """
    checks = session.collect([subject.target])
    if not checks:
        reason = "; ".join(session.skipped.values())
        raise InvalidArgument(f"{subject.target} can't run here: {reason}")
    return checks[0]


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
