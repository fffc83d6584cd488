"""What a rank kept for suspect, held against other bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.compare import Comparison, compare
from tpcheck.evidence import Values
from tpcheck.oracle.pose import Posed
from tpcheck.protocol import returned
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import Key
from tpcheck.verdict import Mismatch

#: A rank's mismatches, and the largest error over bound of its right tensors.
Found = tuple[list[Mismatch], float]


def looked_at(posed: Posed, report: RankReport, folder: Path) -> Found:
    """A rank's mismatches under these bounds."""
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
        again = _again(posed, report, target, actual, first)
        if again.mismatch is not None:
            mismatches.append(again.mismatch)
        else:
            usage = max(usage, again.usage)
    return mismatches, usage


def outside(
    posed: Posed, d: int, target: Target, reports: list[RankReport], folder: Path
) -> Tensor:
    """The elements, by number, that ranks of a dp coordinate have outside of a tensor's bounds, by
    what they kept of it."""
    found = [torch.zeros(0, dtype=torch.int64)]
    key = target.kind, target.name
    for report in reports:
        if key not in report.suspects or posed.case.coordinates(report.rank).get("dp", 0) != d:
            continue
        actual = (returned.read(folder, report.rank) or {}).get(str(Key(*key)))
        numbers = torch.arange(target.value.numel()).view(target.value.shape)
        expected, sigma, numbers = (
            placement.take(t, report.suspects[key], case=posed.case, rank=report.rank)
            for t in (target.value, target.spread.sigma, numbers)
        )
        if actual is not None and actual.shape == expected.shape:
            limit = target.spread.elementwise_limit(expected.numel())
            found.append(numbers[(actual.double() - expected).abs() > sigma * limit])
    return torch.cat(found).unique()


def _again(
    posed: Posed, report: RankReport, target: Target, actual: Tensor, first: Mismatch
) -> Comparison:
    # a kernel's output may have another dtype than the reference's: the first look knows
    other = isinstance(first.detail, Values) and first.detail.dtype is not None
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
        dtype=target.dtype if other else None,
    )
