"""`tpcheck calibrate`: what the bounds are worth. Loads no torch before a command runs."""

from __future__ import annotations

import json as json_
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from tpcheck.cli.console import Console
from tpcheck.cli.options import (
    CorpusDir,
    Engine,
    JsonFile,
    Ranks,
    Seed,
    TimeLimit,
    duration,
    integers,
    whole_number,
)
from tpcheck.errors import EngineUnavailable, InvalidArgument

calibrate = typer.Typer(
    name="calibrate",
    help="Measures the bounds: false alarms on correct candidates, and the smallest faults seen.",
    no_args_is_help=True,
)
DTYPES = "float64,float32,bfloat16,float16"
console = Console(highlight=False, soft_wrap=True)


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
        Path | None, typer.Option(help="Where finished cases are noted: .tpcheck/campaign.jsonl.")
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
    from tpcheck.calibrate.campaign import STATE, Campaign, Plan, State
    from tpcheck.case import Space
    from tpcheck.engines import ranks_for
    from tpcheck.engines.engine import Engine
    from tpcheck.report import calibration, machine, text
    from tpcheck.search import canary
    from tpcheck.search.collect import collect, heavy_imports, runnable
    from tpcheck.search.corpus import Corpus
    from tpcheck.search.search import real_ranks, simulated

    until = time.monotonic() + duration(time_budget) if time_budget else None
    plan = Plan(integers(tp, "--tp"), tuple(dtype.split(",")), seed)
    size = ranks or ranks_for(plan.degrees)
    Space(plan.degrees, plan.dtypes, size)
    preload = heavy_imports(targets or ["properties"])
    with ExitStack() as stack:
        ready = stack.enter_context(Engine(engine, size, time_limit=time_limit, preload=preload))
        untrusted = canary.sings(ready)
        if untrusted:
            raise EngineUnavailable(untrusted)
        checks, absent = runnable(collect(targets or ["properties"]))
        for name, reason in absent.items():
            console.print(text.skipped(name, reason))
        kept = State(state or STATE, plan)
        shared = simulated(ready) and any(check.processes for check in checks)
        real = stack.enter_context(real_ranks(ready)) if shared else ready
        campaign = Campaign(checks, ready, plan, kept, Corpus(corpus), real)
        found = campaign.run(
            cases,
            until=until,
            finished=lambda unit: console.print(calibration.unit(unit)),
        )
    console.print("\n" + calibration.campaign(found))
    if json:
        machine.write(json, machine.dumps(found.to_dict()))
    raise typer.Exit(1 if found.alarms else 0)


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
    runs: Annotated[int, typer.Option(help="Seeds of each cell.", **whole_number(1))] = 100,
    seed: Seed = 0,
    time_limit: TimeLimit = 30.0,
    json: JsonFile = None,
) -> None:
    """The smallest relative error on one rank's partial sum that is found 99 times in 100."""
    from tpcheck.calibrate.sensitivity import SUBJECTS, Subject, measure
    from tpcheck.case import Space
    from tpcheck.engines.engine import Engine
    from tpcheck.report import calibration, machine
    from tpcheck.search.collect import collect, heavy_imports, runnable

    if (target is None) != (dims is None):
        raise InvalidArgument("give a check and its --dims together, or neither")
    subjects = SUBJECTS if target is None else (Subject(target, target, parsed(dims)),)
    degrees, dtypes = integers(tp, "--tp"), tuple(dtype.split(","))
    Space(degrees, dtypes, max(degrees))
    preload = heavy_imports(subject.target for subject in subjects)
    rows = []
    with Engine(engine, max(degrees), time_limit=time_limit, preload=preload) as ready:
        for subject in subjects:
            checks, absent = runnable(collect([subject.target]))
            if not checks:
                reason = "; ".join(absent.values())
                raise InvalidArgument(f"{subject.target} can't run here: {reason}")
            rows += measure(
                subject,
                checks[0],
                ready,
                degrees=degrees,
                dtypes=dtypes,
                runs=runs,
                seed=seed,
                finished=lambda row: console.print(calibration.threshold(row)),
            )
    console.print("\n" + calibration.sensitivity(rows))
    if json:
        report = {"runs": runs, "seed": seed, "thresholds": [row.to_dict() for row in rows]}
        machine.write(json, machine.dumps(report))


def parsed(text: str | None) -> dict[str, Any]:
    """`{"seq": 8}` → a mapping."""
    try:
        found = json_.loads(text or "")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(f"--dims {text!r} is no JSON object, such as '{{\"seq\": 8}}'")
    return found
