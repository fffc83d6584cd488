"""What `tpcheck fuzz` shows while it runs: a table on a terminal; else a line now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tpcheck.cli.console import console

if TYPE_CHECKING:
    from rich.live import Live

    from tpcheck.figures.hunted import Finding, Hunted

#: Seconds between two pictures of the table. It costs milliseconds, and nobody reads faster.
REFRESH = 0.5

#: Seconds between two lines, where there is no terminal: a log of a night has hundreds.
LINE = 60.0

#: Lines of the terminal that the table leaves free: for its frame, the sums, and findings above it.
FREE = 10


class View:
    """What a run is told to; a context in which the table is there."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._last = time.monotonic()

    def __enter__(self) -> View:
        if console.is_terminal and not console.quiet:
            from rich.live import Live

            # without a thread of its own: the driver forks
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def found(self, finding: Finding) -> None:
        """A finding, when it is met, and when it has been made smaller."""
        from tpcheck.report import hunted as report

        console.print(report.found(finding))

    def gone(self, finding: Finding) -> None:
        """One of an earlier run that no longer fails."""
        from tpcheck.report import hunted as report

        console.print(report.gone(finding))

    def said(self, title: str, line: str) -> None:
        """Something else of a check."""
        from tpcheck.report import hunted as report

        console.print(report.said(title, line))

    def moment(self, hunted: Hunted) -> None:
        """Where the run stands; shown when it is time."""
        from tpcheck.report import hunted as report

        now = time.monotonic()
        if now - self._last < (LINE if self._live is None else REFRESH):
            return
        self._last = now
        if self._live is None:
            console.print(report.standing(hunted))
        else:
            self._live.update(_table(hunted, max(console.height - FREE, 3)), refresh=True)


def _table(hunted: Hunted, most: int) -> Any:
    from rich.table import Table

    from tpcheck.report import hunted as report

    table = Table(title=report.standing(hunted), title_justify="left")
    for number, column in enumerate(report.COLUMNS):
        table.add_column(column, justify="right" if number else "left")
    for row in report.rows(hunted, most):
        table.add_row(*row)
    return table
