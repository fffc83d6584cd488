"""Tensors that few noisy runs suspect are judged again under the bounds of many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.compare import Comparison, compare
from tpcheck.oracle.effort import CLOSER, CONFIRM, SCREEN, Effort
from tpcheck.oracle.pose import Posed
from tpcheck.protocol import returned
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import Key
from tpcheck.verdict import Mismatch

#: A float64 tensor this many times off its bound stays wrong under any other one: bounds of a case
#: differ by their noise, tens of percent, and not by orders of magnitude. It saves the many runs.
CLEAR = 1e3
#: Steps of training that are looked at one by one, before all are. With fewer, a right tensor that
#: few runs suspect in an early step has a wrong one in a later step cost as much as all steps do;
#: with more, so do several right ones.
ALONE = 2


def doubtful(posed: Posed, reports: list[RankReport]) -> bool:
    """Whether closer bounds could clear a tensor: not where a float64 one is far off its own. An
    integer may hang on a tie, which few runs may not have met."""
    if posed.effort is not SCREEN:
        return False
    found = _suspected(reports)
    if posed.case.dtype != "float64" or _has_integers(posed, found):
        return bool(found)
    return any(m.error is not None and m.error <= CLEAR * (m.bound or 0.0) for m in found)


def look_again(
    closely: Callable[[Effort, int], Posed], reports: list[RankReport], folder: Path
) -> Posed:
    """Judges the tensors that each rank kept for suspect once more, under the bounds of more runs,
    and, where these clear one or it is an integer, of many: in place, the mismatches of those that
    are right after all are taken out of `reports`. In training the first steps with a suspect are
    looked at one by one: where one in them stays wrong, what is wrong after it follows, and stays.

    Args:
        closely: (effort, steps) → so many steps of the case posed again; 1 of a case without.

    Returns:
        The case as it decided.
    """
    steps = sorted({mismatch.name.at.step for mismatch in _suspected(reports)})
    for step in dict.fromkeys([*steps[:ALONE], steps[-1]]):
        posed = _looked(closely, step + 1, reports, folder)
        if any(mismatch.name.at.step <= step for mismatch in _suspected(reports)):
            break
    return posed


def _looked(
    closely: Callable[[Effort, int], Posed], steps: int, reports: list[RankReport], folder: Path
) -> Posed:
    """As `look_again`, of the suspects in so many steps."""
    suspected = _suspected(reports)
    posed = closely(CLOSER, steps)
    found = [_looked_at(posed, report, folder) for report in reports]
    cleared = any(
        len(mismatches) < len(report.mismatches)
        for (mismatches, _), report in zip(found, reports, strict=True)
    )
    if cleared or _has_integers(posed, suspected):
        posed = closely(CONFIRM, steps)
        found = [_looked_at(posed, report, folder) for report in reports]
    for report, (mismatches, usage) in zip(reports, found, strict=True):
        report.mismatches, report.usage = mismatches, usage
    return posed


def _suspected(reports: list[RankReport]) -> list[Mismatch]:
    return [m for r in reports for m in r.mismatches if (m.kind, m.tensor) in r.suspects]


def _has_integers(posed: Posed, found: list[Mismatch]) -> bool:
    integers = {(t.kind, t.name) for t in posed.problems[0].targets if t.exact is not None}
    return any((m.kind, m.tensor) in integers for m in found)


def _looked_at(posed: Posed, report: RankReport, folder: Path) -> tuple[list[Mismatch], float]:
    """A rank's mismatches under these bounds, and the largest error in them of a right tensor."""
    if not report.suspects:
        return report.mismatches, report.usage
    # where the candidate has removed one, or written over it, its evidence stands
    kept = returned.read(folder, report.rank) or {}
    problem = posed.problems[posed.case.coordinates(report.rank).get("dp", 0)]
    targets = {(t.kind, t.name): t for t in problem.targets}
    mismatches, usage = [], report.usage
    for first in report.mismatches:
        key = (first.kind, first.tensor)
        actual, target = kept.get(str(Key(*key))), targets.get(key)
        if actual is None or target is None or key not in report.suspects:
            mismatches.append(first)
            continue
        again = _again(posed, report, target, actual)
        if again.mismatch is not None:
            mismatches.append(again.mismatch)
        else:
            usage = max(usage, again.usage)
    return mismatches, usage


def _again(posed: Posed, report: RankReport, target: Target, actual: Tensor) -> Comparison:
    entry = report.suspects[target.kind, target.name]
    expected, sigma, exact = (
        None if t is None else placement.take(t, entry, case=posed.case, rank=report.rank)
        for t in (target.value, target.spread.sigma, target.exact)
    )
    assert expected is not None and sigma is not None
    return compare(
        actual,
        expected,
        replace(target.spread, sigma=sigma),
        exact,
        name=target.name,
        kind=target.kind,
        rank=report.rank,
        dtype=target.dtype if target.kind.is_output else None,
    )
