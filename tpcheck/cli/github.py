"""`--github`: what a run prints for GitHub's runner, and adds to the summary of its job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpcheck.cli.say import say

if TYPE_CHECKING:
    from tpcheck.cli.reports import Reports
    from tpcheck.verdict import CheckResult, Verdict

Github = Annotated[
    bool,
    typer.Option("--github", help="Annotate lines, and write the job's summary, on GitHub."),
]


def summarize(
    reports: Reports,
    verdict: Verdict,
    results: Sequence[CheckResult],
    *,
    seconds: float,
    unknown: str | None,
    skipped: Mapping[str, str],
) -> None:
    """Adds the run to the summary of the step's job; outside of GitHub there is none."""
    from tpcheck.report import github

    file = os.environ.get("GITHUB_STEP_SUMMARY")
    reports.write(
        Path(file) if file else None,
        lambda: github.summary(verdict, results, seconds=seconds, unknown=unknown, skipped=skipped),
        add=True,
    )


def annotate(results: Sequence[CheckResult], unknown: str | None) -> None:
    """Prints a command per check that does not pass; paths are those of the checkout, which is the
    working folder outside of GitHub."""
    from tpcheck.report import github

    folder = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    for line in github.commands(results, folder, unknown=unknown):
        say(line)
