"""Where the part of a tensor lies that a rank has, by index lists. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpcheck.axes import Axis, along
from tpcheck.case import Case
from tpcheck.placement import Entry, Sharded, by_axis, is_same_part

Places = Sequence[Sequence[int]]


def places(entry: Entry, shape: Sequence[int], *, case: Case, rank: int) -> Places:
    """Where rank `rank`'s part of a tensor of this shape lies: by dim, its indices."""
    every: list[Sequence[int]] = [range(size) for size in shape]
    for axis, own in by_axis(entry).items():
        if isinstance(own, Sharded):
            at = every[own.dim]
            every[own.dim] = [at[i] for i in own.indices(len(at), *along(axis, case, rank))]
    return every


def same_parts(one: Entry, other: Entry, shape: Sequence[int], case: Case) -> bool:
    """Whether two entries put the same elements of a tensor of this shape on each rank."""

    def cuts(entry: Entry) -> list[tuple[str, Any]]:
        return [(axis, own) for axis, own in by_axis(entry).items() if isinstance(own, Sharded)]

    def of(entry: Entry, rank: int) -> list[list[int]]:
        return [[*indices] for indices in places(entry, shape, case=case, rank=rank)]

    return cuts(one) == cuts(other) or all(
        of(one, rank) == of(other, rank) for rank in range(case.world_size)
    )


def in_words_of(
    wants: dict[str, Any], has: dict[str, Any], shape: tuple[int, ...], case: Case
) -> dict[str, Any]:
    """What a tensor `has`, in the words of what it is to have, where that says the same: Shard(-1),
    Heads, blocks of one size, two axes as one."""
    same = {
        axis: wants[axis]
        for axis in has.keys() & wants.keys()
        if is_same_part(has[axis], wants[axis], shape, case.mesh.get(axis, 1))
    }
    has = {**has, **same}
    others = has != wants and any(isinstance(axis, Axis) for axis in has)
    return wants if others and same_parts(has, wants, shape, case) else has
