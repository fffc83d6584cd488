"""The ranks that save what those of a case load: the same state, at another degree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpcheck.case import Case
from tpcheck.check import Check, dp_can_be
from tpcheck.errors import CaseError
from tpcheck.oracle.pose import Posed, ends_as, placed_as
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Target
from tpcheck.runner.files import CaseFiles
from tpcheck.runner.sent import of_case
from tpcheck.tensors.names import STEP, InPass
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


def require_saver(check: Check, case: Case) -> None:
    """Raises `CaseError` where the case asks for ranks that save, and the check has none."""
    if case.dp > 1 and not dp_can_be(check):
        raise CaseError(
            f"case.mesh={dict(case.mesh)}: the check resumes training, and each dp coordinate "
            'leaves other parameters; give Spec(dp_gradients="sum" or "mean")'
        )
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
    problems = [replace(problem, targets=[]) for problem in posed.problems]
    found = replace(posed, case=case, problems=problems)
    if case == posed.case:
        return found
    params, named = placed_as(check.spec, case, posed.problems[0].params, limit)
    found = replace(found, params=params, named=named)
    if not check.resumes:
        return found
    inputs, outputs = ends_as(check.spec, case, posed, limit)
    return replace(found, inputs=inputs, outputs=outputs)


def resumed(check: Check, posed: Posed) -> Posed:
    """What is to be compared where ranks go on with training: what the first step left, and all
    that comes later."""
    if not check.resumes:
        return posed
    problems = [
        replace(problem, targets=[t for t in problem.targets if _is_resumed(t)])
        for problem in posed.problems
    ]
    return replace(posed, problems=problems)


def _is_resumed(target: Target) -> bool:
    left = target.kind in (Kind.PARAM, Kind.OPTIMIZER_STATE)
    at = InPass.parse(target.name).at
    return at.step > 0 or at == STEP or left


def save(engine: Engine, key: str, saver: Posed, files: CaseFiles) -> list[RankReport | Mismatch]:
    """Has ranks write the checkpoint that those of a case load; one outcome per rank.

    Args:
        key: of the candidate, which they have been taught.
    """
    about: dict[str, Any] = {"checkpoint": str(files.checkpoint), "epoch": engine.next_epoch()}
    return engine.run(key, Work(**of_case(saver, files), **about, saving=True))
