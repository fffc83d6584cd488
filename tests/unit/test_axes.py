"""Axes that a candidate makes of a case's mesh."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import pytest

from tpcheck.axes import Axis, along, axis_of, covered
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.placement import Replicate, Shard
from tpcheck.protocol.wire import unpickled
from tpcheck.tensors.places import places, same_parts

CASE = Case(mesh={"dp": 4, "cp": 2, "tp": 2})


def test_an_axis_of_the_case_is_found_by_its_ranks_whatever_it_is_called() -> None:
    found = axis_of("mine", [1, 5, 9, 13], CASE)
    assert found == "dp" and not isinstance(found, Axis)
    assert axis_of("mine", [12, 13], CASE) == "tp"
    assert axis_of("mine", [3], CASE) is None


@pytest.mark.parametrize(
    ("ranks", "digits", "of"),
    [
        ([4 * dp + 2 * cp + 1 for dp, cp in product(range(4), range(2))], [(2, 8)], {"dp", "cp"}),
        ([2 * cp + tp + 8 for cp, tp in product(range(2), range(2))], [(1, 4)], {"cp", "tp"}),
        ([2, 10], [(8, 2)], {"dp"}),  # the outer part of dp
        ([1, 5], [(4, 2)], {"dp"}),  # the inner one
        ([2, 3, 6, 7, 10, 11, 14, 15], [(4, 4), (1, 2)], {"dp", "tp"}),  # without what is between
        ([2, 3, 10, 11], [(8, 2), (1, 2)], {"dp", "tp"}),
    ],
)
def test_what_is_made_of_axes(ranks: list[int], digits: list[Any], of: set[str]) -> None:
    found, size = axis_of("mine", ranks, CASE), len(ranks)
    assert isinstance(found, Axis) and (found.size, [*found.digits]) == (size, digits)
    assert found == "mine" and covered(found, CASE) == of
    assert [along(found, CASE, rank) for rank in ranks] == [(size, at) for at in range(size)]
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, Axis) and (again, again.digits) == ("mine", found.digits)


def test_a_name_of_the_case_is_not_that_of_another_axis() -> None:
    assert axis_of("tp", [0, 4], CASE) == "tp'"


@pytest.mark.parametrize(
    "ranks", [[0, 3], [0, 1, 3], [2, 4], [1, 2], [0, 1, 2], [0, 1, 4, 6], [0, 0]]
)
def test_ranks_that_no_axes_have_together_are_refused(ranks: list[int]) -> None:
    with pytest.raises(InvalidArgument, match=r"has the ranks \[.*\] along its axis 'mine', which"):
        axis_of("mine", ranks, CASE)


def test_entries_that_say_the_same_in_other_words() -> None:
    both = axis_of("both", [4 * dp + 2 * cp for dp, cp in product(range(4), range(2))], CASE)
    assert both is not None
    one, other = {both: Shard(0)}, {"dp": Shard(0), "cp": Shard(0)}
    assert same_parts(one, other, (16, 3), CASE)
    assert not same_parts(one, other, (11, 3), CASE)  # torch.chunk of torch.chunk
    assert not same_parts(one, {"dp": Shard(0)}, (16, 3), CASE)
    assert same_parts({both: Replicate()}, {}, (16, 3), CASE)
    assert [*places(one, (16, 3), case=CASE, rank=15)[0]] == [14, 15]


def test_it_goes_over_the_wire() -> None:
    (axis,) = unpickled(pickle.dumps({Axis("mine", [(2, 4)]): Shard(0)}))
    assert isinstance(axis, Axis) and axis.size == 4


def test_the_order_of_its_ranks_does_not_count() -> None:
    assert axis_of("mine", [8, 0, 12, 4], CASE) == "dp"
