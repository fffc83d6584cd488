"""Writes what `--json` and `--junit` ask for. A report that can't be written changes no verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import typer

from tpcheck.cli import signals
from tpcheck.cli.streams import complain
from tpcheck.errors import TROUBLE


class Reports:
    """The reports of one command.

    Each that can't be written is one line on stderr; the others are written.
    """

    def __init__(self) -> None:
        self.missing = False

    def write(self, path: Path | None, make: Callable[[], str], *, add: bool = False) -> None:
        """Writes what `make` gives, where the user named a file; or adds it to what is there."""
        from tpcheck.report import machine

        if path is None:
            return
        try:
            (machine.add if add else machine.write)(path, make())
        except Exception as error:
            self.missing = True
            complain(str(error) or f"can't write the report {path}: {type(error).__name__}")

    def end(self, code: int) -> NoReturn:
        """Ends the command. Who asked for a report and gets none is not told 0."""
        signals.told()
        raise typer.Exit(code or (TROUBLE if self.missing else 0))
