"""Tensors that few noisy runs suspect are judged again under the bounds of many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.compare import Comparison, compare
from tpcheck.oracle.effort import CONFIRM
from tpcheck.oracle.pose import Posed
from tpcheck.protocol import returned
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import Key

#: A float64 tensor this many times off its bound stays wrong under any other one: bounds of a case
#: differ by their noise, tens of percent, and not by orders of magnitude. It saves the many runs.
CLEAR = 1e3


def doubtful(posed: Posed, reports: list[RankReport]) -> bool:
    """Whether closer bounds could clear a tensor: not where a float64 one is far off its own. An
    integer may hang on a tie, which few runs may not have met."""
    if posed.effort is CONFIRM:
        return False
    found = [m for r in reports for m in r.mismatches if (m.kind, m.tensor) in r.suspects]
    integers = {(t.kind, t.name) for t in posed.problems[0].targets if t.exact is not None}
    if posed.case.dtype != "float64" or any((m.kind, m.tensor) in integers for m in found):
        return bool(found)
    return any(m.error is not None and m.error <= CLEAR * (m.bound or 0.0) for m in found)


def look_again(confirmed: Posed, reports: list[RankReport], folder: Path) -> None:
    """Judges the tensors that each rank kept for suspect once more, under the bounds of
    `confirmed`: in place, the mismatches of those that are right after all are taken out of
    `reports`."""
    for report in reports:
        if not report.suspects:
            continue
        # where the candidate has removed one, or written over it, its evidence stands
        kept = returned.read(folder, report.rank) or {}
        problem = confirmed.problems[confirmed.case.coordinates(report.rank).get("dp", 0)]
        targets = {(t.kind, t.name): t for t in problem.targets}
        mismatches = []
        for first in report.mismatches:
            actual = kept.get(str(Key(first.kind, first.tensor)))
            if actual is None or (first.kind, first.tensor) not in report.suspects:
                mismatches.append(first)
                continue
            again = _again(confirmed, report, targets[first.kind, first.tensor], actual)
            if again.mismatch is not None:
                mismatches.append(again.mismatch)
            else:
                report.usage = max(report.usage, again.usage)
        report.mismatches = mismatches


def _again(confirmed: Posed, report: RankReport, target: Target, actual: Tensor) -> Comparison:
    entry = report.suspects[target.kind, target.name]
    expected, sigma, exact = (
        None if t is None else placement.take(t, entry, case=confirmed.case, rank=report.rank)
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
