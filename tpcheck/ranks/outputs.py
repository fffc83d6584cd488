"""Outputs that are DTensors: whether they are placed as the layout says."""

from __future__ import annotations

import math
from typing import Any

from tpcheck.axes import along, covered
from tpcheck.case import Case
from tpcheck.evidence import PlacedOtherwise
from tpcheck.placement import Partial, Replicate, by_axis, summed
from tpcheck.protocol.problem import Target
from tpcheck.tensors.live import is_dtensor, placed_whole
from tpcheck.tensors.places import same_parts


def placed_otherwise(target: Target, actual: Any, case: Case, rank: int) -> PlacedOtherwise | None:
    """An output that has its parts on other ranks than the layout says: who takes it by what the
    layout says would compute with others. Terms of a sum are the tensor all the same; where the
    layout asks for them, they have to be those of a sum, on all those ranks."""
    if not (target.kind.is_output and is_dtensor(actual) and actual.ndim == target.value.ndim):
        return None
    live, wants = placed_whole(actual, target.value, target.entry, case, rank), target.entry
    due = {a for a, own in by_axis(wants).items() if own == Partial() and case.mesh.get(a, 1) > 1}
    summable = all(own.is_partial("sum") for own in actual.placements if own.is_partial())
    right = not due or (summable and _has_terms_over(live, due, case, rank))
    if right and same_parts(summed(live), summed(wants), tuple(target.value.shape), case):
        return None
    has = str(live or Replicate()) if summable or not due else str(actual.placements)
    return PlacedOtherwise(has, str(wants))


def _has_terms_over(live: Any, due: set[str], case: Case, rank: int) -> bool:
    """Whether the axes along which ranks hold terms are, together, all of these."""
    terms = [axis for axis, own in live.items() if own == Partial()]
    over = set[str]().union(*(covered(axis, case) for axis in terms))
    count = math.prod(along(axis, case, rank)[0] for axis in terms)
    return due <= over and count >= math.prod(case.mesh[axis] for axis in due)
