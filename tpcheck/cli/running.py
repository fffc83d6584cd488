"""What `tpcheck verify` shows while it runs: a line for each running check on a terminal; else one
now and then. Its clock decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.live import Live
from rich.text import Text

from tpcheck.check import Check
from tpcheck.cli.console import console
from tpcheck.report import running
from tpcheck.report.visible import visible
from tpcheck.search.addresses import titles
from tpcheck.search.news import Begun, Explains, Follower, Met, News, Ran
from tpcheck.search.schedule import Job

#: Seconds between two pictures of the lines. They cost milliseconds, and nobody reads faster.
REFRESH = 0.25

#: Seconds between two lines of a check, where there is no terminal: a log of an hour has hundreds.
LINE = 30.0


@dataclass
class _Running:
    """A check that runs.

    Args:
        begun, said: when it began, and when a line of it was last printed.
    """

    job: Job
    standing: running.Standing
    begun: float
    said: float


class Running(Follower):
    """Follows a run; a context in which the lines are there.

    Args:
        checks: those of the run, by their numbers.
    """

    every = REFRESH

    def __init__(self, checks: Sequence[Check]) -> None:
        self._titles = titles(checks)
        self._running: dict[int, _Running] = {}
        self._met: set[int] = set()  # checks whose failure was told
        self._live: Live | None = None
        self._last = time.monotonic()

    def __enter__(self) -> Running:
        if console.is_terminal and console.file.isatty() and not console.is_dumb_terminal:
            # without a thread of its own, and without what is printed elsewhere: the driver forks
            self._live = Live(
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None

    def begun(self, job: Job) -> None:
        now = time.monotonic()
        standing = running.Standing(self._titles[job.check])
        self._running[job.check] = _Running(job, standing, now, now)
        self._show(at_once=True)

    def told(self, job: Job, news: News) -> None:
        own = self._running[job.check]
        of = own.standing
        match news:
            case Begun():
                own.standing = running.Standing(of.title)
            case Ran(tp):
                of.tp = tp
                of.cases, of.smaller = of.cases + (not of.failed), of.smaller + of.failed
            case Met(case, tensor, number):
                of.failed = True
                if job.check not in self._met:
                    self._met.add(job.check)
                    later = job.find_only
                    console.print(running.met(of.title, case, tensor, number, later=later))
            case Explains():
                of.explained = True
        self._show()

    def ended(self, job: Job) -> None:
        self._running.pop(job.check, None)
        self._show(at_once=True)

    def moment(self) -> None:
        self._show()

    def _show(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._live is None:
            for own in self._running.values():
                if now - own.said >= LINE:
                    own.said = now
                    console.print(f"{'…':<8}{_line(own, now)}")
        elif at_once or now - self._last >= REFRESH:
            self._last = now
            lines = [Text(visible(_line(own, now)), "dim") for own in self._running.values()]
            for line in lines:
                line.no_wrap, line.overflow = True, "ellipsis"
            self._live.update(Group(*lines), refresh=True)


def _line(own: _Running, now: float) -> str:
    left = None if own.job.deadline is None else own.job.deadline - now
    return running.standing(own.standing, seconds=now - own.begun, left=left)
