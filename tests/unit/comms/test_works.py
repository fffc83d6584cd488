"""In which collective a rank waits, of several that it has entered."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from tests.unit.comms.test_board import EPOCH, boards, post
from tpcheck.comms import works
from tpcheck.comms.board import Board
from tpcheck.comms.region import IN_LAST, SLOTS
from tpcheck.comms.trace import Recorder
from tpcheck.comms.works import watch_works

__all__ = ["boards"]  # a fixture


class Noting(Board):
    """Notes what its rank says that it waits in."""

    said: list[int | None]

    def waits(self, rank: int, epoch: int, number: int | None) -> None:
        self.said.append(number)
        super().waits(rank, epoch, number)

    def heard(self) -> list[int | None]:
        """Since this was asked."""
        heard, self.said = self.said, []
        return heard


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    """The board of a world of one rank, whose recorder is entered."""
    monkeypatch.setattr(works, "_unseen", {})
    watch_works()
    watch_works()  # twice is once
    board, memory = Noting.new(1)
    os.close(memory)
    assert isinstance(board, Noting)
    board.said = []
    board.begin(0, EPOCH)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    try:
        with Recorder(0, board=board, epoch=EPOCH):
            yield board
    finally:
        dist.destroy_process_group()


def test_a_rank_waits_in_the_collective_whose_work_it_waits_for(alone: Noting) -> None:
    first = dist.all_reduce(torch.ones(1), async_op=True)
    second = dist.all_reduce(torch.ones(2), async_op=True)
    assert first is not None and second is not None
    assert alone.heard() == [None, None], "it is in neither"
    second.wait()
    first.wait()
    assert alone.heard() == [2, None, 1, None]
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    assert alone.heard() == [None, 3, None, None, 4, None]


@pytest.mark.parametrize(
    "ask", [dist.Work.get_future, dist.Work.is_completed], ids=["future", "polled"]
)
def test_where_it_may_wait_without_a_word_it_is_in_the_last(alone: Noting, ask: Any) -> None:
    first = dist.all_reduce(torch.ones(1), async_op=True)
    assert first is not None and alone.heard() == [None]
    getattr(first, ask.__name__)()
    assert alone.heard() == [IN_LAST]
    dist.all_reduce(torch.ones(2))
    assert alone.heard() == [IN_LAST, 2, IN_LAST]
    first.wait()
    assert alone.heard() == [1, IN_LAST]


def test_another_thread_that_waits_does_not_speak_for_the_rank(alone: Noting) -> None:
    first = dist.all_reduce(torch.ones(1), async_op=True)
    assert first is not None and alone.heard() == [None]
    waiting = threading.Thread(target=first.wait)
    waiting.start()
    waiting.join()
    assert alone.heard() == []


def test_a_rank_waits_for_the_result_of_a_functional_collective(alone: Noting) -> None:
    each = [functional.all_reduce(torch.ones(n), "sum", dist.group.WORLD) for n in (1, 2)]
    assert alone.heard() == [None, None]
    assert [(tensor + 1).sum().item() for tensor in each] == [2, 4]
    assert alone.heard() == [1, None, 2, None]


def test_what_is_entered_without_python_is_waited_for_until_something_else_is_said(
    boards: tuple[Board, Board],
) -> None:
    writer, reader = boards
    assert reader.waited(0, EPOCH) is None
    for step in range(3):
        writer.post(0, EPOCH, post(step))
    assert reader.waited(0, EPOCH) == post(2)
    writer.waits(0, EPOCH, 2)
    assert reader.waited(0, EPOCH) == post(1)
    assert reader.absent(0, EPOCH) == [1, 2]
    writer.waits(0, EPOCH - 1, 1)  # of a case that is over
    assert reader.waited(0, EPOCH) == post(1)
    writer.post(1, EPOCH, post(0))
    writer.post(1, EPOCH, post(1))
    assert reader.absent(0, EPOCH) == [2], "what it has entered later is not waited for"
    writer.waits(0, EPOCH, None)
    assert reader.waited(0, EPOCH) is None and reader.absent(0, EPOCH) == []
    writer.post(0, EPOCH, post(3))
    assert reader.waited(0, EPOCH) == post(3)
    writer.begin(0, EPOCH + 1)
    assert reader.waited(0, EPOCH) is reader.waited(0, EPOCH + 1) is None


def test_a_rank_that_receives_from_any_other_waits_in_that_and_for_none_in_particular(
    boards: tuple[Board, Board],
) -> None:
    recorder = Recorder(0, board=boards[0], epoch=EPOCH, dispatch=False)
    for op, peer in (("send", 1), ("recv", None)):
        recorder.record(op, [torch.zeros(2)], (0, 1), None, peer=peer)
    waited = boards[1].waited(0, EPOCH)
    assert waited is not None and waited.text.startswith("recv float32[2] from any of ranks 0,1 in")
    assert boards[1].absent(0, EPOCH) == []


def test_what_a_rank_no_longer_keeps_it_is_not_said_to_wait_in(
    boards: tuple[Board, Board],
) -> None:
    writer, reader = boards
    for step in range(SLOTS + 1):
        writer.post(0, EPOCH, post(step))
    writer.waits(0, EPOCH, 1)
    assert reader.waited(0, EPOCH) is None
    writer.waits(0, EPOCH, 2)
    assert reader.waited(0, EPOCH) == post(1)
