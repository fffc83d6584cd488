"""What a rank kept for suspect, held against other bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
    """A rank's mismatches under these bounds. What more runs show that rounding may leave out is
    no longer one."""
    if not report.suspects:
        return report.mismatches, report.usage
    # where the candidate has removed one, or written over it, its evidence stands
    kept = returned.read(folder, report.rank) or {}
    problem = posed.problems[posed.case.dp_coordinate(report.rank)]
    targets = {(t.kind, t.name): t for t in problem.targets}
    mismatches, usage = [], report.usage
    for first in report.mismatches:
        key = (first.kind, first.tensor)
        actual, target = kept.get(str(Key(*key))), targets.get(key)
        if target is None and min(posed.overflowed, default=math.inf) <= first.name.at.step:
            continue
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
    key, whole = (target.kind, target.name), target.value
    own = [r for r in reports if key in r.suspects]
    own = [r for r in own if posed.case.dp_coordinate(r.rank) == d]
    found = [torch.zeros(0, dtype=torch.int64)]
    numbers = torch.arange(whole.numel()).view(whole.shape) if own else found[0]
    for report in own:
        actual = (returned.read(folder, report.rank) or {}).get(str(Key(*key)))
        part = part_of(posed, report, target)
        expected, sigma = part(whole), part(target.spread.sigma)
        if actual is not None and actual.shape == expected.shape:
            limit = target.spread.elementwise_limit(expected.numel())
            found.append(part(numbers)[(actual.double() - expected).abs() > sigma * limit])
    return torch.cat(found).unique()


def part_of(posed: Posed, report: RankReport, target: Target) -> Callable[[Tensor], Tensor]:
    """A full tensor → a rank's part of it, placed as the rank has the suspect."""
    entry = report.suspects[target.kind, target.name]
    return partial(placement.take, entry=entry, case=posed.case, rank=report.rank)


def _again(
    posed: Posed, report: RankReport, target: Target, actual: Tensor, first: Mismatch
) -> Comparison:
    # a kernel's output may have another dtype than the reference's: the first look knows
    other = isinstance(first.detail, Values) and first.detail.dtype is not None
    part = part_of(posed, report, target)
    return compare(
        actual,
        part(target.value),
        replace(target.spread, sigma=part(target.spread.sigma)),
        None if target.exact is None else part(target.exact),
        name=target.name,
        kind=target.kind,
        rank=report.rank,
        dtype=target.dtype if other else None,
    )
