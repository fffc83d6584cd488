"""Asynchronous collectives made late: what a function reads before it has waited is not there yet.

Between processes of one host a message arrives in microseconds, so that a read that comes too early
mostly finds what it should. Here one rank of the group, another one each time, lets the others go
ahead; and what a rank is to receive is poisoned before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from tpcheck.comms.board import Board
from tpcheck.comms.operands import written

#: Seconds that the late rank stays away once the others have entered. Longer costs each collective
#: as much; shorter, and a read that comes too early may come after all.
LATE = 0.01
#: Seconds that it waits for the others, which may wait for it elsewhere first.
PATIENCE = 0.25
#: What these receive into holds nothing that they need.
_RECEIVING = ("all_gather", "reduce_scatter", "recv")


class Late:
    """One rank's part in it, in one case.

    Args:
        epoch: the number of the case on the board.
    """

    def __init__(self, board: Board, rank: int, epoch: int) -> None:
        self.board, self.rank, self.epoch = board, rank, epoch
        self._entered: dict[tuple[int, ...], int] = {}

    def before(self, op: str, tensors: Sequence[Tensor], group: tuple[int, ...]) -> None:
        """An asynchronous collective has been posted, and is about to be entered."""
        if op in _RECEIVING:
            _poison(written(op, list(tensors)), list(tensors))
        count = self._entered.get(group, 0)
        self._entered[group] = count + 1
        if len(group) > 1 and group[count % len(group)] == self.rank:
            self._let_others_go_ahead()

    def _let_others_go_ahead(self) -> None:
        until = time.monotonic() + PATIENCE
        while self.board.absent(self.rank, self.epoch) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(LATE)


def _poison(received: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Numbers that show in whatever is computed from them; nothing that is also sent."""
    sent = {id(t) for t in received}
    held = {t.untyped_storage().data_ptr() for t in tensors if id(t) not in sent}
    with torch.no_grad():
        for tensor in received:
            if tensor.numel() and tensor.untyped_storage().data_ptr() not in held:
                floats = tensor.is_floating_point() or tensor.is_complex()
                if floats or tensor.dtype != torch.bool:
                    tensor.fill_(torch.nan if floats else torch.iinfo(tensor.dtype).max)
