"""Axes along which ranks have parts of a tensor: those of a case's mesh, and those that a candidate
makes of them, as `_flatten` and `_unflatten` do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpcheck.errors import InvalidArgument

if TYPE_CHECKING:
    from tpcheck.case import Case


class Axis(str):
    """The name of an axis that the case's mesh does not have: several of its axes as one, a part of
    one, or one in another order. Rank r is where r // stride % size stands in `order`.

    Args:
        stride: by how much the numbers of its ranks differ.
        order: of its ranks, from 0.
    """

    __slots__ = ("order", "stride")
    order: tuple[int, ...]
    stride: int

    def __new__(cls, name: str, stride: int, order: Sequence[int]) -> Axis:
        made = super().__new__(cls, name)
        made.stride, made.order = stride, tuple(order)
        return made

    def __getnewargs__(self) -> tuple[str, int, tuple[int, ...]]:  # type: ignore[override]
        return str(self), self.stride, self.order

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return len(self.order)


def along(axis: str, case: Case, rank: int) -> tuple[int, int]:
    """How many ranks an axis has, and where on it a rank is; (1, 0) of one that is not there."""
    if isinstance(axis, Axis):
        return axis.size, axis.order.index(rank // axis.stride % axis.size)
    return case.mesh.get(axis, 1), case.coordinates(rank).get(axis, 0)


def axis_of(name: str, ranks: Sequence[int], case: Case) -> str | None:
    """The axis of a case that has these ranks along it, or one that is made of its axes; None of a
    single rank.

    Args:
        name: what a mesh of the candidate's own calls it.
        ranks: in order, the own one among them.

    Raises:
        InvalidArgument: ranks that the axes of the case don't put together so.
    """
    size = len(ranks)
    if size == 1:
        return None
    first, second, *_ = sorted(ranks)
    stride, strides = second - first, _strides(case)
    order = [rank // max(1, stride) % size for rank in ranks]
    whole = stride > 0 and sorted(ranks) == [first + stride * at for at in range(size)]
    whole = whole and first // stride % size == 0
    if not whole or not all(_fits(edge, strides) for edge in (stride, stride * size)):
        raise InvalidArgument(
            f"a DTensor's mesh has the ranks {list(ranks)} along its axis {name!r}, which no axes "
            f"of the case's mesh {dict(case.mesh)} have together; make it of the mesh that build "
            "is given"
        )
    in_order = order == [*range(size)]
    same = (own for own in case.mesh if (case.mesh[own], strides[own]) == (size, stride))
    if in_order and (found := next(same, None)) is not None:
        return found
    return Axis(f"{name}'" if name in case.mesh else name, stride, order)


def covered(axis: str, case: Case) -> set[str]:
    """The axes of a case along which a rank moves with one along this axis."""
    if not isinstance(axis, Axis):
        return {axis}
    low, high, strides = axis.stride, axis.stride * axis.size, _strides(case)
    return {own for own, n in case.mesh.items() if strides[own] < high and low < strides[own] * n}


def _fits(edge: int, strides: Mapping[str, int]) -> bool:
    """Whether ranks so far apart are at the ends of a part of one axis, or of whole ones."""
    return all(edge % own == 0 or own % edge == 0 for own in strides.values())


def _strides(case: Case) -> dict[str, int]:
    """By how much the numbers of neighbours on each axis of a case differ."""
    sizes = list(case.mesh.items())
    return {axis: math.prod(n for _, n in sizes[i + 1 :]) for i, (axis, _) in enumerate(sizes)}
