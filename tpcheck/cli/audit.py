"""`tpcheck audit`: a plan against a model, without ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from tpcheck.cli import signals
from tpcheck.cli.options import JsonFile, whole_number
from tpcheck.cli.reports import Reports
from tpcheck.cli.say import say


def audit(
    factory: Annotated[str, typer.Argument(metavar="MODULE:FACTORY")],
    plan: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="Default: the model's own tp_plan.")
    ] = None,
    tp: Annotated[int, typer.Option(help="TP degree.", **whole_number(1))] = 2,
    whole: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of parameters that are meant to stay whole; may be repeated."),
    ] = None,
    optional: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of keys that may match nothing; may be repeated."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """What a plan matches, what it skips, what is sharded; needs no ranks."""
    with signals.loading():
        from tpcheck.cli.target import audit_target
        from tpcheck.report import machine
        from tpcheck.report import plan as report

    found = audit_target(factory, plan=plan, tp=tp, whole=whole or (), optional=optional or ())
    reports = Reports()
    reports.write(json, lambda: machine.dumps(report.to_dict(found)))
    say(report.text(found))
    reports.end(1 if found.findings else 0)
