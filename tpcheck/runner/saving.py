"""The ranks that save what those of a case load: the same state, at another degree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import CaseError
from tpcheck.oracle.pose import Posed, placed_as
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.runner.files import CaseFiles
from tpcheck.runner.sent import of_case
from tpcheck.verdict import Mismatch

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


def require_saver(check: Check, case: Case) -> None:
    """Raises `CaseError` where the case asks for ranks that save, and the check has none."""
    if case.saved_at and check.save is None:
        raise CaseError(f"case.saved_at={case.saved_at}: the check saves nothing; it has no save")


def saving(check: Check, posed: Posed, limit: float) -> Posed | None:
    """A case of the ranks that save, with nothing to compare; None where none do.

    Args:
        limit: seconds that the spec may take.

    Raises:
        CaseError, LayoutError: there can be no such ranks.
    """
    if check.save is None:
        return None
    case = posed.case.when_saved
    if case == posed.case:
        params, named = posed.params, posed.named
    else:
        params, named = placed_as(check.spec, case, posed.problems[0].params, limit)
    problems = [replace(problem, targets=[]) for problem in posed.problems]
    return replace(posed, case=case, params=params, named=named, problems=problems)


def save(engine: Engine, key: str, saver: Posed, files: CaseFiles) -> list[RankReport | Mismatch]:
    """Has ranks write the checkpoint that those of a case load; one outcome per rank.

    Args:
        key: of the candidate, which they have been taught.
    """
    about: dict[str, Any] = {"checkpoint": str(files.checkpoint), "epoch": engine.next_epoch()}
    return engine.run(key, Work(**of_case(saver, files), **about, saving=True))
