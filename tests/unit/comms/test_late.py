"""Asynchronous collectives made late: who is late, and what is poisoned before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tpcheck.comms import late
from tpcheck.comms.late import Late

GROUP = (0, 1)


class Board:
    """On which the other rank enters at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def absent(self, rank: int, epoch: int) -> list[int]:
        self.looks += 1
        return [1 - rank] if self.looks < 3 else []


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(late.time, "sleep", seconds.append)
    return seconds


def test_each_rank_is_late_in_turn_once_the_others_are_there(slept: list[float]) -> None:
    board: Any = Board()
    one = Late(board, 0, 1)
    one.before("all_reduce", [torch.ones(2)], GROUP)
    assert board.looks == 3 and slept[-1] == late.LATE
    slept.clear()
    one.before("all_reduce", [torch.ones(2)], GROUP)
    assert not slept, "the other one's turn"
    one.before("all_reduce", [torch.ones(2)], (0,))
    assert not slept, "alone in its group"


def test_what_is_received_into_is_poisoned_and_what_is_sent_is_not() -> None:
    one = Late(Board(), 0, 1)  # type: ignore[arg-type]
    out, own = torch.zeros(4), torch.ones(2)
    one.before("all_gather", [out, own], GROUP)
    assert out.isnan().all() and own.eq(1).all()
    counts = torch.zeros(4, dtype=torch.int32)
    one.before("recv", [counts], GROUP)
    assert counts.eq(2**31 - 1).all()
    both = torch.zeros(4)
    one.before("all_gather", [both, both[:2]], GROUP)
    one.before("all_reduce", [both], GROUP)
    assert both.eq(0).all(), "what is sent from there would be lost"
