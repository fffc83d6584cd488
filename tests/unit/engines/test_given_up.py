"""What is told of ranks that are given up, by what they have on the board."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.comms.test_board import EPOCH, post
from tests.unit.diagnosis.test_structure import alone
from tpcheck.causes.structure import GivenUp
from tpcheck.comms.board import Board
from tpcheck.engines.given_up import given_up
from tpcheck.engines.waiting import STALL, Collection
from tpcheck.evidence import Stuck
from tpcheck.protocol.messages import RankReport
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Code, Impasse


@pytest.fixture
def board() -> Board:
    board, memory = Board.new(4)
    os.close(memory)
    for rank in range(4):
        board.begin(rank, EPOCH)
    return board


def told(board: Board, impasse: Stuck) -> list[Mismatch]:
    host: Any = SimpleNamespace(pid=os.getpid(), index=0)
    found = given_up(board, EPOCH, dict.fromkeys(range(4), host), set(), impasse, shown=False)
    return list(found.values())


def test_at_the_time_limit_a_rank_at_work_is_named_and_not_those_that_wait_for_it(
    board: Board,
) -> None:
    """0 waits for 2, and 1 and 2 for 3, which has left the collective that it entered last."""
    for rank, other in ((0, 2), (1, 3), (2, 3)):
        board.post(rank, EPOCH, post(0, f"of {rank}", members=(rank, other)))
    board.post(3, EPOCH, post(0, "alone", members=(3,)))
    board.waits(3, EPOCH, None)
    hangs = told(board, Stuck(Impasse.TOO_LONG, seconds=5.0))
    details = [m.detail for m in hangs if isinstance(m.detail, Stuck)]
    assert [stuck.absent for stuck in details] == [(2,), (3,), (3,), ()]
    named, waiting = alone(*hangs), {0: "of 0", 1: "of 1", 2: "of 2", 3: None}
    assert isinstance(named.cause, GivenUp) and named.code is Code.DEADLOCK
    assert (named.cause.rank, named.cause.waiting_in) == (3, waiting)


def test_of_several_under_way_the_one_that_is_waited_for_is_told(board: Board) -> None:
    for rank, first, last in ((0, (0, 1), (0, 2)), (1, (1, 3), (1, 2)), (2, (0, 2), (1, 2))):
        board.post(rank, EPOCH, post(0, f"first of {rank}", members=first))
        board.post(rank, EPOCH, post(0, f"last of {rank}", members=last))
        board.waits(rank, EPOCH, 1)
    board.waits(3, EPOCH, None)
    hangs = told(board, Stuck(Impasse.EVERY_RANK_WAITS))
    details = [m.detail for m in hangs if isinstance(m.detail, Stuck)]
    assert [s.waits_in for s in details] == ["first of 0", "first of 1", "first of 2", None]
    assert [stuck.absent for stuck in details] == [(1,), (3,), (), ()]


def test_those_that_have_finished_are_not_said_to_wait(board: Board) -> None:
    work: Any = SimpleNamespace(case=SimpleNamespace(world_size=3), epoch=EPOCH)
    wait = Collection([], work, board=board, time_limit=60, status_of=lambda host: None)
    for rank, members in ((0, (0, 1)), (1, (1, 0, 2))):
        board.post(rank, EPOCH, post(0, members=tuple(sorted(members))))
    board.post(2, EPOCH, post(0, members=(0, 1, 2)))
    finished: Any = RankReport
    wait.found = {2: finished}
    assert wait._stalled(0) is None
    stuck = wait._stalled(STALL + 1)
    assert stuck == Stuck(Impasse.EVERY_RANK_WAITS, finished=(2,))
