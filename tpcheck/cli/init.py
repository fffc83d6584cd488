"""`tpcheck init`: a first check of a module or a plan, written to a file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tpcheck.cli import signals
from tpcheck.cli.options import path
from tpcheck.cli.say import say


def init(
    factory: Annotated[str, typer.Argument(metavar="MODULE:FACTORY")],
    plan: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A plan of parallelize_module for the module."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="The unsharded module. Default: the factory without its mesh or group, where it "
            "can be left out, else on one rank.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=SIZES",
            help="What forward takes: x=batch,8, or ids=batch,seq:100 of integers below 100; may "
            "be repeated. Default: guessed.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=path, help="The file. Default: check_FACTORY.py."),
    ] = None,
) -> None:
    """Writes a first check of what FACTORY makes, to run with verify: a module for a plan, one that
    communicates by itself, or a transformers model or configuration."""
    with signals.loading():
        from tpcheck.cli import start

    file, notes = start.write(factory, plan, reference, inputs or (), out)
    for note in notes:
        say(f"note: {note}")
    say(f"wrote {file}; run it: tpcheck verify {shlex.quote(str(file))}")
