"""`tpcheck bench`: what a check costs."""

from __future__ import annotations

from typing import Annotated

import typer

from tpcheck.cli import signals
from tpcheck.cli.console import Console, console
from tpcheck.cli.options import JsonFile
from tpcheck.cli.reports import Reports

#: Columns that the table has at least: cut to 80, as where the output is piped, it would hide its
#: figures.
WIDTH = 150


def bench(
    quick: Annotated[bool, typer.Option(help="Fewer repetitions.")] = False,
    json: JsonFile = None,
) -> None:
    """Throughput against the bare loop and against torch's own test harnesses."""
    with signals.loading():
        from tpcheck.bench import bench as run
        from tpcheck.bench import render
        from tpcheck.report import machine

    reports = Reports()
    report = run(quick=quick)
    reports.write(json, lambda: machine.dumps(report.to_dict()))
    Console(width=max(console.width, WIDTH)).print(render(report))
    reports.end(0)
