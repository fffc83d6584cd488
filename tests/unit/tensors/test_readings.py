"""How the shape of a rank's mask may be read."""

from __future__ import annotations

import pytest
import torch

from tpcheck.case import Case
from tpcheck.tensors.readings import Reading, readings

TWO = Case(mesh={"tp": 2})


def ways(full: tuple[int, ...], own: tuple[int, ...], rank: int = 0) -> list[Reading]:
    return list(readings(full, own, case=TWO, rank=rank))


@pytest.mark.parametrize(
    ("full", "own", "first"),
    [
        ((3, 5, 8), (3, 5, 8), Reading((0, 1, 2))),
        ((3, 5, 8), (3, 5, 4), Reading((0, 1, 2), 2)),
        ((3, 6, 8), (3, 3, 8), Reading((0, 1, 2), 1)),
        ((3, 6, 8), (3, 8, 3), Reading((0, 2, 1), 1)),
        ((3, 4, 5, 5), (6, 5, 5), Reading((0, 1, 2, 3), 1)),
        ((2, 4, 5, 5), (4, 5, 5), Reading((0, 1, 2, 3), 1)),
        ((3, 5, 8), (15, 8), Reading((0, 1, 2))),
        ((3, 5, 8), (5, 3, 4), Reading((1, 0, 2), 2)),
        ((3, 5, 8), (3, 5, 2, 4), Reading((0, 1, 2))),
        ((), (), Reading(())),
    ],
)
def test_the_likely_way_is_the_first(
    full: tuple[int, ...], own: tuple[int, ...], first: Reading
) -> None:
    assert ways(full, own)[0] == first


@pytest.mark.parametrize(
    "own", [(3, 5), (3, 1, 8), (120,) * 2, (3, 5, 7), (4, 5, 6), (40, 4), (24, 2)]
)
def test_what_is_no_part_has_none(own: tuple[int, ...]) -> None:
    assert ways((3, 5, 8), own) == []


def test_equal_sizes_may_be_read_in_several_ways() -> None:
    assert len(ways((4, 4, 4), (4, 4, 4))) == 6
    found = ways((2, 4, 6), (2, 2, 6))
    assert found[0] == Reading((0, 1, 2), 1) and Reading((1, 0, 2), 1) in found
    assert len(set(found)) == len(found)


def test_the_part_is_what_the_rank_has() -> None:
    full = torch.arange(2 * 4 * 3).view(2, 4, 3)
    part = Reading((1, 0, 2), 1).part(full, case=TWO, rank=1)
    assert torch.equal(part, full[:, 2:].transpose(0, 1))


def test_one_rank_splits_nothing() -> None:
    alone = readings((4, 4), (4, 4), case=Case(mesh={"tp": 1}), rank=0)
    assert {way.dim for way in alone} == {None}
