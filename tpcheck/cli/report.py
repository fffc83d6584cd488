"""`tpcheck report`: a page of a JSON report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpcheck.cli.console import console
from tpcheck.cli.options import PageFile, path


def report(
    file: Annotated[
        Path, typer.Argument(metavar="F.json", parser=path, help="What the --json of a verb wrote.")
    ],
    output: PageFile = None,
) -> None:
    """Makes one HTML file of a JSON report, to read and to hand on."""
    from tpcheck.report import machine
    from tpcheck.report.page import render

    where = output or file.with_suffix(".html")
    machine.write(where, render.of_file(file))
    console.print(f"wrote {where}")
