"""From which collective on two ranks are out of step, by what they have on the board."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.comms.test_board import EPOCH, boards, post
from tpcheck.comms.board import Board

__all__ = ["boards"]  # a fixture


def test_where_two_ranks_part_is_the_first_collective_that_they_enter_at_two_places(
    boards: tuple[Board, Board],
) -> None:
    writer, reader = boards
    forward = [replace(post(i), place=f"forward {i}", where="x.py:3") for i in range(3)]
    for own in forward:
        writer.post(0, EPOCH, own)
    writer.post(1, EPOCH, forward[0])
    assert reader.parted(0, 1, EPOCH) is None, "one is behind"
    other = replace(forward[1], place="backward 1", where="x.py:9")
    writer.post(1, EPOCH, other)
    assert reader.parted(0, 1, EPOCH) == (forward[1], other)
    assert reader.parted(1, 0, EPOCH) == (other, forward[1])
    writer.post(1, EPOCH, replace(forward[2], place="backward 2"))
    assert reader.parted(0, 1, EPOCH) == (forward[1], other)


def test_ranks_that_are_in_step_again_have_not_parted(boards: tuple[Board, Board]) -> None:
    writer, reader = boards
    for rank in (0, 1):
        writer.post(rank, EPOCH, replace(post(0), where=f"x.py:{rank}"))
        writer.post(rank, EPOCH, replace(post(1), where="x.py:7"))
        writer.post(rank, EPOCH, replace(post(0, members=(0, 1)), where=f"x.py:{rank}"))
    writer.post(0, EPOCH, replace(post(2), where="x.py:8"))
    assert reader.parted(0, 1, EPOCH) is None
