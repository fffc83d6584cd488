"""Operands: what is sent to whom, read from the arguments alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tpcheck.comms.operands import awaited, exchanged_by, full_elements, written


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([torch.ones(1), torch.ones(2, 2)], [torch.ones(3), torch.ones(0)]), ((3, 0), (1, 4))),
        ((torch.ones(3, 2), torch.ones(4, 2), [1, 2], [0, 4]), ((0, 8), (2, 4))),
        ((torch.ones(4, 2), torch.ones(4, 2), [], []), ((4, 4), (4, 4))),
        ((torch.ones(4, 2), [1, 2], [0, 4], "name"), ((0, 8), (2, 4))),  # functional
        ((torch.ones(0, 2), torch.ones(2, 2), [0, 0], [2, 0]), ((4, 0), (0, 0))),
        ((torch.ones(4), torch.ones(4), [4], [4]), None),  # torch refuses one size for two ranks
        ((torch.ones(()), torch.ones(()), [], []), ((0, 0), (0, 0))),  # or a scalar
    ],
)
def test_what_is_exchanged_is_read_from_the_arguments(args: Any, expected: Any) -> None:
    assert exchanged_by("all_to_all", args, 2) == expected
    assert exchanged_by("all_gather", args, 2) is None


def test_only_what_sends_something_to_a_rank_is_awaited() -> None:
    full, empty = [torch.ones(2)], [torch.ones(0)]
    assert awaited("all_reduce", full, (0, 2), None) == (0, 2)
    assert awaited("all_reduce", empty, (0, 2), None) == ()
    assert awaited("broadcast", full, (0, 2), None) == ()  # its source goes ahead
    assert awaited("all_to_all", full, (0, 2), ((1, 1), (0, 3))) == (2,)


def test_elements_are_those_of_the_full_tensor() -> None:
    part, whole = torch.ones(2), torch.ones(6)
    assert full_elements("all_gather", [whole, part], 3) == 6
    assert full_elements("all_gather", [part], 3) == 6  # functional: its input alone
    assert full_elements("reduce_scatter", [part, whole], 3) == 6
    assert full_elements("all_reduce", [part, part], 3) == 4
    assert full_elements("send", [part], 3) == 2


def test_a_receive_writes_and_a_send_does_not() -> None:
    x = torch.ones(2)
    assert written("recv", [x])[0] is x and not written("send", [x])
