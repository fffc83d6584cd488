"""`tpcheck report`: a page of a JSON report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tpcheck.cli.options import PageFile, path
from tpcheck.cli.say import say
from tpcheck.errors import InvalidArgument


def report(
    file: Annotated[
        Path, typer.Argument(metavar="F.json", parser=path, help="What the --json of a verb wrote.")
    ],
    output: PageFile = None,
) -> None:
    """Makes one HTML file of a JSON report, to read and to hand on."""
    from tpcheck.report import machine
    from tpcheck.report.page import render

    page = render.of_file(file)
    where = output or file.with_suffix(".html")
    if os.path.realpath(where) == os.path.realpath(file):
        raise InvalidArgument(f"the page would take the place of the report {file}: give -o FILE")
    machine.write(where, page)
    say(f"wrote {where}")
