"""Runs of the candidate that a diagnosis asks for, besides that of the case itself."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from tpcheck.case import Case
from tpcheck.diagnosis.facts import Dumps
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import Posed
from tpcheck.protocol import folders, returned
from tpcheck.runner.runner import Runner
from tpcheck.tensors.names import Key, Pass
from tpcheck.verdict import CaseResult


def rerun_once(runner: Runner) -> Callable[[Case], CaseResult | None]:
    """Runs other cases of the same check, each once; None for one that can't be."""
    results: dict[str, CaseResult | None] = {}

    def rerun(case: Case) -> CaseResult | None:
        key = case.canonical()
        if key not in results:
            results[key] = None
            with contextlib.suppress(InvalidArgument):
                results[key] = runner.run(case)
        return results[key]

    return rerun


def on_fresh_ranks(runner: Runner, posed: Posed) -> CaseResult:
    """What it comes to where nothing has run before it."""
    runner.renew(posed.case.world_size)
    return runner.execute(posed)


def kept(
    runner: Runner,
    posed: Posed,
    *,
    watch: Pass | None = None,
    follow: bool = False,
    again: bool = True,
) -> tuple[CaseResult, Dumps]:
    """The result of a case, and every rank's tensors; `again` as of `Runner`."""
    # after it the run's folder is there, whatever a candidate did to it, and new ranks have the
    # candidate from a template: each would import its modules by itself
    runner.engine.teach(runner.taught, posed.case.world_size)
    folder = Path(tempfile.mkdtemp(dir=runner.engine.folder))
    try:
        runner.again = again
        result = runner.execute(posed, dump=folder, watch=watch, follow=follow)
        ranks = range(posed.case.world_size)
        found = {rank: own for rank in ranks if (own := returned.read(folder, rank)) is not None}
    finally:
        runner.again = True
        folders.remove(folder)
    return result, {
        rank: {Key.parse(name): tensor for name, tensor in own.items()}
        for rank, own in found.items()
    }
