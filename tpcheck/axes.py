"""Axes along which ranks have parts of a tensor: those of a case's mesh, and those that a candidate
makes of them, as `_flatten` and `_unflatten` do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tpcheck.errors import InvalidArgument

if TYPE_CHECKING:
    from tpcheck.case import Case


class Axis(str):
    """The name of an axis that the case's mesh does not have: several of its axes as one, or a part
    of one.

    Args:
        digits: (stride, size), the outermost first: along each, rank r is at r // stride % size,
            and along all of them at the number that has these digits.
    """

    __slots__ = ("digits",)
    digits: tuple[tuple[int, int], ...]

    def __new__(cls, name: str, digits: Iterable[tuple[int, int]]) -> Axis:
        made = super().__new__(cls, name)
        made.digits = tuple(digits)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[tuple[int, int], ...]]:  # type: ignore[override]
        return str(self), self.digits

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return math.prod(size for _, size in self.digits)


def along(axis: str, case: Case, rank: int) -> tuple[int, int]:
    """How many ranks an axis has, and where on it a rank is; (1, 0) of one that is not there."""
    if not isinstance(axis, Axis):
        return case.mesh.get(axis, 1), case.coordinates(rank).get(axis, 0)
    at = 0
    for stride, size in axis.digits:
        at = at * size + rank // stride % size
    return axis.size, at


def axis_of(name: str, ranks: Sequence[int], case: Case) -> str | None:
    """The axis of a case that has these ranks along it, or one that is made of its axes; None of a
    single rank. Their order does not count: parts go by the rank in a process group, and groups
    have their ranks sorted.

    Args:
        name: what a mesh of the candidate's own calls it.
        ranks: the own one among them.

    Raises:
        InvalidArgument: ranks that the axes of the case don't put together so.
    """
    if len(ranks) == 1:
        return None
    strides, digits = _strides(case), _digits(sorted(ranks))
    if digits is None or not all(
        min(ranks) // stride % size == 0
        and all(_fits(edge, strides) for edge in (stride, stride * size))
        for stride, size in digits
    ):
        raise InvalidArgument(
            f"a DTensor's mesh has the ranks {list(ranks)} along its axis {name!r}, which no axes "
            f"of the case's mesh {dict(case.mesh)} have together; make it of the mesh that build "
            "is given"
        )
    same = (own for own in case.mesh if ((strides[own], case.mesh[own]),) == digits)
    if (found := next(same, None)) is not None:
        return found
    return Axis(f"{name}'" if name in case.mesh else name, digits)


def covered(axis: str, case: Case) -> set[str]:
    """The axes of a case along which a rank moves with one along this axis."""
    if not isinstance(axis, Axis):
        return {axis}
    strides = _strides(case)
    return {
        own
        for own, n in case.mesh.items()
        for stride, size in axis.digits
        if strides[own] < stride * size and stride < strides[own] * n
    }


def _digits(ranks: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
    """(stride, size) of the digits by whose values these ranks, sorted, differ, the outermost
    first; None where they are not all that there are of such."""
    if len(ranks) == 1:
        return ()
    stride = ranks[1] - ranks[0]
    size = next((n for n in range(2, len(ranks)) if ranks[n] - ranks[n - 1] != stride), len(ranks))
    heads = ranks[::size]
    outer = _digits(heads)
    whole = [head + stride * at for head in heads for at in range(size)] == [*ranks]
    return (*outer, (stride, size)) if outer is not None and whole and stride > 0 else None


def _fits(edge: int, strides: Mapping[str, int]) -> bool:
    """Whether ranks so far apart are at the ends of a part of one axis, or of whole ones."""
    return all(edge % own == 0 or own % edge == 0 for own in strides.values())


def _strides(case: Case) -> dict[str, int]:
    """By how much the numbers of neighbours on each axis of a case differ."""
    sizes = list(case.mesh.items())
    return {axis: math.prod(n for _, n in sizes[i + 1 :]) for i, (axis, _) in enumerate(sizes)}
