"""`tpcheck bench`: what a check costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tpcheck.cli import signals
from tpcheck.cli.options import JsonFile, integers, path, whole_number
from tpcheck.cli.reports import Reports
from tpcheck.cli.say import say
from tpcheck.errors import InvalidArgument
from tpcheck.search import files

#: Columns that a table has at least: cut to 80, as where the output is piped, it would hide its
#: figures.
WIDTH = 150


def bench(
    quick: Annotated[bool, typer.Option(help="Fewer repetitions, and the small cells.")] = False,
    parts: Annotated[
        str, typer.Option(help="What to measure: start, examples, suites, table, gate.")
    ] = "start,examples,suites,table,gate",
    sizes: Annotated[str | None, typer.Option(help="Hidden dims of the table.")] = None,
    tp: Annotated[str | None, typer.Option(help="Degrees of the table.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Dtypes of the table.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engines of the table.")] = None,
    laps: Annotated[
        int | None, typer.Option(help="Of each cell of the table, at most.", **whole_number(1))
    ] = None,
    gate: Annotated[
        str, typer.Option(help="Files whose cases per second are told.")
    ] = "properties",
    against: Annotated[
        Path | None,
        typer.Option(parser=path, help="An earlier report, which this run is compared with."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Throughput against the bare loop and against torch's own test harnesses."""
    asked = {"laps": laps, **_asked(sizes, tp, dtype, engine)}
    chosen = parts.split(",")
    if "gate" in chosen and gate != "properties":
        files.look([gate])
    if against is not None and "table" not in chosen:
        raise InvalidArgument("--against compares the tables of two runs: have table in --parts")
    with signals.loading():
        from tpcheck.bench import bench as run
        from tpcheck.bench import compare, plot, render
        from tpcheck.bench.grid import Grid
        from tpcheck.bench.measure import QUICK
        from tpcheck.cli.console import Console, console
        from tpcheck.report import machine

    before = None if against is None else compare.load(against)
    given = {name: value for name, value in asked.items() if value is not None}
    table = replace(QUICK if quick else Grid(), **given)
    if before is not None:
        compare.require_common(before, table.names())
    report = run(
        chosen,
        table=table,
        quick=quick,
        target=gate,
        finished=lambda cell: say(cell.line()),
    )
    data = report.to_dict()
    wide = Console(width=max(console.width, WIDTH))
    if before is not None:
        found = compare.compare(before, compare.figures(data["table"]))
        data["against"] = [one.to_dict() for one in found]
    reports = Reports()
    reports.write(json, lambda: machine.dumps(data))
    for one in render(report):
        wide.print(one)
    if before is not None:
        wide.print(plot.differences(found))
    reports.end(0)


def _asked(
    sizes: str | None, tp: str | None, dtype: str | None, engine: str | None
) -> dict[str, Any]:
    """What the table has, of each dimension; None where nothing is said of it."""
    return {
        "sizes": None if sizes is None else integers(sizes, "--sizes"),
        "degrees": None if tp is None else integers(tp, "--tp"),
        "dtypes": None if dtype is None else tuple(dtype.split(",")),
        "engines": None if engine is None else tuple(engine.split(",")),
    }
