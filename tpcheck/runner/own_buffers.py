"""Buffers that forwards write, where data-parallel ranks share gradients.

What is expected of each is what its own data leave, as under FSDP2. That is not the only right way:
ranks may share what they have (the mean of their statistics, the largest, the sum of what they
counted), or all begin a forward with those of the first one, as DDP's do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.case import Case
from tpcheck.oracle.pose import Posed
from tpcheck.protocol import returned
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.runner.looked_at import part_of
from tpcheck.tensors.names import InPass, Key
from tpcheck.vocabulary import Kind

#: What a running sum keeps at least of what there was. With less, what ranks add up that each of
#: them has would pass for one.
LEAST_KEPT = 0.1

#: How many roundings of the dtype what ranks share may be beside what it is made of: sums over a
#: few ranks, each rounded. Far fewer digits than any other number would agree in.
ROUNDINGS = 16


def own_buffers(posed: Posed) -> frozenset[tuple[Kind, str]]:
    """Those that differ between dp coordinates, as parameters after a step do not."""
    if not posed.shared or posed.case.dp == 1:
        return frozenset()
    first = _targets(posed, 0)
    return frozenset(
        key
        for d in range(1, len(posed.problems))
        for key, target in _targets(posed, d).items()
        if key in first and not torch.equal(target.value, first[key].value)
    )


def set_aside(posed: Posed, reports: Sequence[RankReport], folder: Path) -> None:
    """In place: what is not one's own is no mismatch where ranks share it in another way, and is
    not counted as judged.

    Args:
        folder: where ranks keep the tensors that they have found wrong.
    """
    params = (m for r in reports for m in r.mismatches if m.kind is Kind.PARAM)
    keys = {(m.kind, m.tensor) for m in params if m.name.base in posed.buffers}
    if not keys or not posed.shared or posed.case.dp == 1:
        return
    own = own_buffers(posed)
    for key in keys:
        wrong = [r for r in reports if any((m.kind, m.tensor) == key for m in r.mismatches)]
        if not _are_shared(posed, key, reports, folder):
            goes_on = key in own and _goes_on(posed.case, key)
            wrong = [r for r in wrong if goes_on and posed.case.dp_coordinate(r.rank)]
        for report in wrong:
            report.mismatches = [m for m in report.mismatches if (m.kind, m.tensor) != key]
            report.compared.pop(key, None)
            report.shared.add(key)


def _goes_on(case: Case, key: tuple[Kind, str]) -> bool:
    """Whether a forward begins with what one before it has left."""
    steps = InPass.parse(key[1]).at.step + 1
    return case.step or case.mode == "inference" or case.microbatches * steps > 1


def _are_shared(
    posed: Posed, key: tuple[Kind, str], reports: Sequence[RankReport], folder: Path
) -> bool:
    """Whether the ranks of all coordinates hold the same, made of what is expected of each."""
    groups: dict[tuple[object, ...], set[str | None]] = {}
    for report in reports:
        at = {**posed.case.coordinates(report.rank), "dp": 0}
        groups.setdefault(tuple(at.items()), set()).add(report.digests.get(key))
    return all(len(held) == 1 for held in groups.values()) and all(
        _is_made_of_all(posed, key, report, folder) for report in reports
    )


def _is_made_of_all(posed: Posed, key: tuple[Kind, str], report: RankReport, folder: Path) -> bool:
    """Whether what a rank has lies between those of all coordinates, or is the sum of what each
    has added to what there was, which may have been made smaller."""
    if key not in report.suspects:  # it has what its own data leave
        return all((m.kind, m.tensor) != key for m in report.mismatches)
    actual = (returned.read(folder, report.rank) or {}).get(str(Key(*key)))
    if actual is None:
        return False

    each = [_targets(posed, d)[key] for d in range(len(posed.problems))]
    first = posed.problems[0].params.get(InPass.parse(key[1]).base)
    if first is None or any(target.value.shape != first.shape for target in each):
        return False  # a forward has put another one there
    cut = part_of(posed, report, each[0])
    values = torch.stack([cut(target.value) for target in each]).double()
    begun = cut(first).double()
    if actual.shape != begun.shape:
        return False
    size = torch.maximum(values.abs().amax(0), begun.abs()) * len(each)
    most = ROUNDINGS * UNIT_ROUNDOFF.get(each[0].dtype, 0.0) * size + sum(
        cut(t.spread.sigma) * t.spread.elementwise_limit(begun.numel()) for t in each
    )
    actual = actual.double()
    between = (actual >= values.amin(0) - most) & (actual <= values.amax(0) + most)
    kept = _share_kept(values.sum(0) - actual, begun * (len(each) - 1))
    total = values.sum(0) - kept * begun * (len(each) - 1)
    return bool(between.all()) or bool(((actual - total).abs() <= most).all())


def _share_kept(more: Tensor, begun: Tensor) -> float:
    """Which share of what there was is still there: each coordinate has it, and their sum has it
    once. All of it, of counts; less, of a running sum."""
    size = float((begun * begun).sum())
    share = float((more * begun).sum()) / size if size else 1.0
    return share if math.isfinite(share) and LEAST_KEPT <= share <= 1.0 else 1.0


def _targets(posed: Posed, d: int) -> dict[tuple[Kind, str], Target]:
    return {(t.kind, t.name): t for t in posed.problems[d].targets if t.kind is Kind.PARAM}
