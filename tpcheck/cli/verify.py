"""`tpcheck verify`: checks are collected and run, one verdict per check."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpcheck.cli import signals
from tpcheck.cli.console import console
from tpcheck.cli.options import (
    PROPERTIES,
    CorpusDir,
    Engine,
    Examples,
    JsonFile,
    JunitFile,
    Ranks,
    Seed,
    Targets,
    TimeLimit,
    duration,
    integers,
)
from tpcheck.errors import InvalidArgument

if TYPE_CHECKING:
    from tpcheck.search.options import Options
    from tpcheck.search.session import Session
    from tpcheck.spec import Check
    from tpcheck.verdict import CheckResult, Verdict


def verify(
    targets: Targets = None,
    engine: Engine = "gloo",
    tp: Annotated[str, typer.Option(help="TP degrees, as in 2,4.")] = "2,4",
    dtype: Annotated[str, typer.Option(help="Dtypes to draw.")] = "float64,float32,bfloat16",
    examples: Examples = 20,
    seed: Seed = 0,
    time_budget: Annotated[str | None, typer.Option(help="For all checks: 90s, 2m.")] = None,
    ranks: Ranks = None,
    time_limit: TimeLimit = 30.0,
    json: JsonFile = None,
    junit: JunitFile = None,
    corpus: CorpusDir = None,
) -> None:
    """Collects Check objects, runs them, prints one verdict per check."""
    run = Run(seed=seed, engine=engine, ranks=ranks or 0)
    try:
        with signals.as_interrupt():
            with signals.held():
                from tpcheck.report import machine  # noqa: F401 - what `tell` needs
                from tpcheck.search.corpus import Corpus
                from tpcheck.search.options import Options
                from tpcheck.search.session import open_session  # noqa: F401 - torch
            options = Options(
                examples=examples,
                seed=seed,
                degrees=integers(tp, "--tp"),
                dtypes=tuple(dtype.split(",")),
                time_budget=duration(time_budget) if time_budget else None,
                corpus=Corpus(corpus),
            )
            _run(run, targets or PROPERTIES, options, time_limit)
    except KeyboardInterrupt:
        run.stop()
    run.tell(json, junit)
    if run.mistake is not None:
        raise run.mistake
    raise typer.Exit(signals.exit_code() if run.stopped else run.verdict.exit_code)


def _run(run: Run, targets: Sequence[str], options: Options, time_limit: float) -> None:
    """On ranks that are as many as `run` says, or as the degrees need."""
    from tpcheck.case import Space
    from tpcheck.engines import ranks_for
    from tpcheck.search.collect import heavy_imports
    from tpcheck.search.session import open_session

    run.ranks = run.ranks or ranks_for(options.degrees)
    Space(options.degrees, options.dtypes, run.ranks)
    preload = heavy_imports(targets)
    with open_session(
        run.engine, run.ranks, time_limit=time_limit, preload=preload, confirm=True
    ) as session:
        run.go(session, targets, options)


@dataclass
class Run:
    """What a run of checks came to.

    Args:
        checks: how many there are, once they are collected.
        stopped, untrusted, mistake: why it is not complete, or not to be trusted.
    """

    seed: int
    engine: str
    ranks: int
    checks: int | None = None
    results: list[CheckResult] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None
    untrusted: str | None = None
    mistake: InvalidArgument | None = None
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def undecided(self) -> str | None:
        """Why the run as a whole decides nothing."""
        return self.stopped or self.untrusted or (str(self.mistake) if self.mistake else None)

    @property
    def verdict(self) -> Verdict:
        from tpcheck.verdict import Verdict, worst

        whole = [Verdict.UNKNOWN] if self.undecided else []
        return worst([*(result.verdict for result in self.results), *whole])

    def go(self, session: Session, targets: Sequence[str], options: Options) -> None:
        """Collects the checks and runs them; each is told of when it is finished."""
        from tpcheck.report import text

        checks = session.collect(targets)
        self.skipped = session.skipped
        for name, reason in self.skipped.items():
            console.print(text.skipped(name, reason))
        self.untrusted = session.untrusted
        if self.untrusted:
            console.print(f"UNKNOWN {self.untrusted}")
        self.checks = len(checks)
        self._run(checks, session, options)
        self.seconds = time.monotonic() - self.begun

    def stop(self) -> None:
        """The run was interrupted."""
        from tpcheck.report import reasons

        self.stopped = reasons.interrupted(len(self.results), self.checks)
        self.seconds = time.monotonic() - self.begun
        console.print(f"UNKNOWN {self.stopped}")

    def _run(self, checks: list[Check], session: Session, options: Options) -> None:
        from tpcheck.search.verify import verify_all

        try:
            with signals.as_interrupt():
                verify_all(checks, session, options, finished=self._finished)
        except InvalidArgument as error:  # of one check: the others' verdicts stand
            if not self.results:
                raise
            self.mistake = error

    def _finished(self, result: CheckResult) -> None:
        from tpcheck.report import text

        self.results.append(result)
        console.print("\n".join([text.line(result), *text.notes(result)]))

    def tell(self, json: Path | None, junit: Path | None) -> None:
        """Prints what failed and the sums, and writes the reports."""
        from tpcheck.report import text
        from tpcheck.verdict import Verdict

        for result in self.results:
            if result.verdict is not Verdict.PASS:
                console.print("\n" + text.failure(result))
        self._write(json, junit)
        total = text.total(
            self.verdict, self.results, skipped=len(self.skipped), seconds=self.seconds
        )
        console.print(f"\n{total}")

    def _write(self, json: Path | None, junit: Path | None) -> None:
        from tpcheck.report import machine

        seconds, unknown, skipped = self.seconds, self.undecided, self.skipped
        if json:
            report = machine.json_report(
                self.results,
                started=self.started,
                seconds=seconds,
                seed=self.seed,
                engine=self.engine,
                ranks=self.ranks,
                unknown=unknown,
                skipped=skipped,
            )
            machine.write(json, machine.dumps(report))
        if junit:
            suite = machine.as_junit(
                self.results, seconds=seconds, unknown=unknown, skipped=skipped
            )
            machine.write(junit, suite)
