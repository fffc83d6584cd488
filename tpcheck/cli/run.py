"""A run of checks from the command line: goes on, is told of, and is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpcheck.cli import signals
from tpcheck.cli.github import summarize
from tpcheck.cli.reports import Reports
from tpcheck.cli.say import say
from tpcheck.cli.streams import complain, say_faults
from tpcheck.errors import TROUBLE, Untrusted

if TYPE_CHECKING:
    from tpcheck.check import Check
    from tpcheck.search.collect import Aside
    from tpcheck.search.options import Options
    from tpcheck.search.session import Session
    from tpcheck.verdict import CheckResult, Verdict


@dataclass
class Run:
    """What a run of checks came to.

    Args:
        jobs: how many checks run side by side; 0 until it is known, where nobody has said it.
        checks: how many there are, once they are collected.
        stopped, untrusted: why it is not complete, or not to be trusted.
    """

    seed: int
    engine: str
    ranks: int
    jobs: int = 1
    verbose: bool = False
    checks: int | None = None
    results: list[CheckResult] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None
    untrusted: str | None = None
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def undecided(self) -> str | None:
        """Why the run as a whole decides nothing."""
        return self.stopped or self.untrusted

    @property
    def verdict(self) -> Verdict:
        from tpcheck.verdict import Verdict, worst

        whole = [Verdict.UNKNOWN] if self.undecided else []
        return worst([*(result.verdict for result in self.results), *whole])

    @property
    def exit_code(self) -> int:
        from tpcheck.verdict import exit_code

        return exit_code(self.results, undecided=self.undecided is not None)

    def go(self, session: Session, targets: Sequence[str], options: Options) -> None:
        """Collects the checks and runs them; each is told of when it is finished."""
        from tpcheck.cli.running import Running
        from tpcheck.search.verify import verify_all

        aside: dict[str, Aside] = {}
        checks = session.collect(targets, aside)
        self._collected(targets, checks, session.skipped, aside)
        self._distrust(session.untrusted)
        with signals.as_interrupt(), Running(checks) as follower:
            told: dict[str, Any] = {"finished": self._finished, "follower": follower}
            session.on_moment(follower.moment)
            self._are(verify_all(checks, session, options, **told))
        self.seconds = time.monotonic() - self.begun

    def side_by_side(
        self,
        opened: Callable[..., AbstractContextManager[Session]],
        preload: Sequence[str],
        targets: Sequence[str],
        options: Options,
    ) -> None:
        """The same in several processes, each of which opens a session."""
        from tpcheck.cli.running import Running
        from tpcheck.engines import require
        from tpcheck.search.collect import collect, runnable
        from tpcheck.search.session import preload_of
        from tpcheck.workers.side_by_side import verify_side_by_side

        require(self.engine, self.ranks)
        aside: dict[str, Aside] = {}
        checks, skipped = runnable(collect(targets, aside))
        self._collected(targets, checks, skipped, aside)
        start = partial(opened, preload={*preload, *preload_of(checks)})
        about: dict[str, Any] = {"engine": self.engine, "jobs": self.jobs}
        try:
            with signals.as_interrupt(), Running(checks) as follower:
                about |= {"finished": self._finished, "follower": follower}
                self._are(verify_side_by_side(checks, start, options, **about))
        except Untrusted as error:
            self._distrust(str(error))
        self.seconds = time.monotonic() - self.begun

    def _collected(
        self,
        targets: Sequence[str],
        checks: Sequence[Check],
        skipped: Mapping[str, str],
        aside: Mapping[str, Aside],
    ) -> None:
        """What there is to run, what can't run here or is not there, and the files that do not
        import."""
        from tpcheck.report import reasons, text
        from tpcheck.search.collect import passed_over, without_checks

        for path in without_checks(targets, aside):
            say(reasons.empty(path))
        for held in passed_over(targets):
            say(reasons.passed_over(*held))
        self.skipped, self.checks = dict(skipped), len(checks) + len(aside)
        for name, reason in self.skipped.items():
            say(text.skipped(name, reason))
        self.set_aside(aside)

    def set_aside(self, files: Mapping[str, Aside]) -> None:
        """Files that do not import, and why."""
        from tpcheck.verdict import CheckResult, Verdict

        for file, one in files.items():
            about: dict[str, Any] = {"reason": one.reason, "trouble": True}
            about |= {"address": file, "line": one.line}
            self._finished(CheckResult(file, Verdict.UNKNOWN, self.engine, **about))

    def _are(self, found: Sequence[CheckResult]) -> None:
        """The results of the checks, in their order, behind those of files that do not import."""
        before = len(self.results) - len(found)
        self.results = [*self.results[:before], *found]

    def _distrust(self, why: str | None) -> None:
        self.untrusted = why
        if why is not None:
            say(f"UNKNOWN {why}")

    def stop(self) -> None:
        """The run was interrupted."""
        from tpcheck.report import reasons

        self.stopped = reasons.interrupted(len(self.results), self.checks)
        self.seconds = time.monotonic() - self.begun
        say(f"UNKNOWN {self.stopped}")

    def _finished(self, result: CheckResult) -> None:
        from tpcheck.report import text
        from tpcheck.verdict import Verdict

        self.results.append(result)
        told = result if self.verbose else replace(result, kinds=None)  # which pages have, too
        say("\n".join([text.line(told), *text.notes(told)]))
        if result.verdict is not Verdict.PASS:
            say(f"\n{text.page(result, verbose=self.verbose)}\n")

    def tell(self) -> None:
        """Prints the sums; a check that can't run is a line on stderr, too."""
        from tpcheck.report import summary, text
        from tpcheck.verdict import Verdict

        about: dict[str, Any] = {"skipped": len(self.skipped), "seconds": self.seconds}
        after_page = self.results and self.results[-1].verdict is not Verdict.PASS
        gap = "" if after_page else "\n"
        say(gap + summary.summary(self.verdict, self.results, **about))
        if self.exit_code == TROUBLE:
            complain(text.troubles(self.results))
        say_faults(result.fault for result in self.results)

    def report(
        self, json: Path | None, junit: Path | None, html: Path | None, github: bool
    ) -> Reports:
        """Writes the reports, before anything of them is printed."""
        from tpcheck.report import machine
        from tpcheck.report.page import render

        about: dict[str, Any] = {
            "seconds": self.seconds,
            "unknown": self.undecided,
            "skipped": self.skipped,
        }
        run: dict[str, Any] = {"started": self.started, "seed": self.seed, "engine": self.engine}
        run |= {"ranks": self.ranks}
        reports = Reports()
        data = partial(machine.json_report, self.results, **run, **about)
        reports.write(json, lambda: machine.dumps(data()))
        reports.write(html, lambda: render.of_data(data()))
        reports.write(junit, lambda: machine.as_junit(self.results, **about))
        if github:
            summarize(reports, self.verdict, self.results, **about)
        return reports
