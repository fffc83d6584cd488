"""What ranks announce to one another of groups in any order, and while others write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.comms.test_board import EPOCH, boards, post
from tpcheck.comms.announcer import Announcer, unlike
from tpcheck.comms.board import Board
from tpcheck.comms.region import SLOTS, Region
from tpcheck.event import Event
from tpcheck.evidence import Uneven
from tpcheck.vocabulary import Phase

__all__ = ["boards"]  # a fixture


def test_a_group_of_ranks_in_another_order_is_one_for_all(boards: tuple[Board, Board]) -> None:
    """`new_group([2, 0], sort_ranks=False)`; counts are in the order of the group."""
    writer, reader = boards
    for rank, exchanged in ((0, ((5, 6), (7, 6))), (2, ((8, 7), (8, 5)))):
        event = Event("all_to_all", None, (2, 0), "float32", (2,), 2, 8, Phase.FORWARD, "x.py:1")
        Announcer(writer, rank, EPOCH).announce(event, "odd", (0, 2), exchanged)
        assert reader.absent(rank, EPOCH) == ([2] if rank == 0 else [])
    first, second = (reader.last(rank, EPOCH)[0] for rank in (0, 2))
    assert (first.members, first.sent, second.received) == ((0, 2), (6, 5), (5, 8))
    assert unlike(reader, EPOCH, 2, second) is None
    other = replace(second, received=(9, 8))
    assert (refused := unlike(reader, EPOCH, 2, other)) is not None
    assert refused.uneven == Uneven(0, 2, 5, 9)


def test_a_slot_that_is_used_again_while_it_is_read_says_nothing(
    boards: tuple[Board, Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = boards
    mine, later = post(0), post(SLOTS, "another collective")
    writer.post(1, EPOCH, mine)
    found = Region.slot

    def overtaken(own: Region, *at: int) -> int | None:
        slot = found(own, *at)
        for step in range(1, SLOTS + 1):
            writer.post(1, EPOCH, later if step == SLOTS else post(step))
        return slot

    monkeypatch.setattr(Region, "slot", overtaken)
    assert not reader.is_unlike(1, EPOCH, mine)
    monkeypatch.undo()
    assert reader.is_unlike(1, EPOCH, replace(later, fingerprint=1))
