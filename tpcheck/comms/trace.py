"""What a rank communicated: every collective with its op, reduce op, group, dtype, shape, bytes,
phase and the line of the candidate's code, in order.

On processes a `Recorder` sees c10d's operators as a dispatch mode, functional collectives
(DTensor's) and direct ones alike; the reduce op of a direct one is not visible there and is
noted on the way in (`watch_reduce_ops`). On threads the process group itself calls `record`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from tpcheck.comms import callsite
from tpcheck.comms.announcer import Announcer
from tpcheck.comms.board import Board
from tpcheck.comms.late import Late
from tpcheck.comms.operands import (
    Exchanged,
    awaited,
    exchanged_by,
    full_elements,
    group_of,
    tensors_in,
    written,
)
from tpcheck.comms.reduce_ops import REDUCING, reduce_op_of
from tpcheck.comms.saved import TRACED, Saved
from tpcheck.comms.works import Results
from tpcheck.event import POINT_TO_POINT, Event
from tpcheck.tensors.dispatch import OverCompiled, is_whole
from tpcheck.vocabulary import Phase

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional")
_OPS = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "recv_any_source": "recv",
    "barrier": "barrier",
}


class Recorder(OverCompiled):
    """The trace of one rank in one case.

    Args:
        rank: this rank.
        board: where to announce, or None.
        epoch: the number of the case on the board.
        dispatch: whether to see c10d operators as a dispatch mode (not on threads).
    """

    def __init__(
        self, rank: int, *, board: Board | None = None, epoch: int = 0, dispatch: bool = True
    ) -> None:
        super().__init__()
        self.rank, self.dispatch = rank, dispatch
        self.announcer = Announcer(board, rank, epoch) if board is not None else None
        self.phase = Phase.BUILD
        self.clips = False  # whether gradients are being clipped
        self.origin = callsite.Origin()
        self.events: list[Event] = []
        self.saved = Saved()
        self.witnesses: frozenset[str] = frozenset()  # whose runs are counted
        self.counted: dict[tuple[Phase, str], int] = {}
        self.broken: BaseException | None = None  # what a collective raised
        self.masks: Any = None  # the `Masks` that operators of random ones go through, or None
        self.results = Results()
        self.late: Late | None = None  # what makes asynchronous ones late, where any does

    def built(self) -> None:
        """Says on the board that the candidate's `build` is over."""
        if self.announcer is not None:
            self.announcer.board.built(self.rank)

    def turn(self) -> None:
        """Says on the board that an interpreted kernel begins its next program."""
        if self.announcer is not None:
            self.announcer.board.turn(self.rank)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if is_whole(func):
            return self.whole(func, args, kwargs)
        kwargs = kwargs or {}
        if types:
            if any(t.__name__ == "DTensor" for t in types):
                if self.masks is not None:
                    self.masks.unfolds(func, args)
                return NotImplemented  # let DTensor unfold into local operations first
            if any(issubclass(t, TRACED) for t in types):
                return func(*args, **kwargs)  # nothing runs yet
            if any(t.__name__ == "AsyncCollectiveTensor" for t in types):
                return NotImplemented  # it waits first
        if self.witnesses:
            self.count(f"{func.namespace}::{func.overloadpacket.__name__}")
        if not _is_c10ds(func):
            if self.masks is not None:
                return self.masks(func, args, kwargs)
            return func(*args, **kwargs)
        if not self.dispatch:
            return func(*args, **kwargs)
        self._record_operator(func, args, kwargs)
        try:
            return self.results.run(func, args, kwargs)
        except Exception as error:
            self.broken = error
            raise

    def _record_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Notes a c10d operator that is about to run, where it is a collective."""
        name = func.overloadpacket.__name__
        op = _OPS.get(name.removesuffix("_").removesuffix("_coalesced"))
        if op is None:
            return
        ranks, communicator = group_of(args, kwargs)
        # functional collectives have no such flag, and never wait themselves
        waits = not next((a for a in args if isinstance(a, bool)), True)
        tensors, exchanged = list(tensors_in(args)), exchanged_by(op, args, len(ranks))
        more: dict[str, Any] = {"waits": waits, "exchanged": exchanged}
        if name in ("send", "recv_"):
            peer, tag = (a for a in args if isinstance(a, int))
            more["peer"], communicator = ranks[peer], f"{communicator} {tag}"
        self.record(op, tensors, ranks, reduce_op_of(op, args), communicator, **more)
        if self.late is not None and not waits:
            self.late.before(op, tensors, ranks)

    def make_late(self) -> None:
        """From now on asynchronous collectives are."""
        if self.announcer is not None and self.dispatch:
            own = self.announcer
            self.late = Late(own.board, own.rank, own.epoch)

    def record(
        self,
        op: str,
        tensors: list[Tensor],
        group: tuple[int, ...],
        reduce_op: str | None,
        communicator: str = "",
        *,
        waits: bool = False,
        exchanged: Exchanged | None = None,
        peer: int | None = None,
    ) -> None:
        """Notes a collective about to be entered; raises `CollectiveMismatch` against a peer.

        Args:
            communicator: the group's name, the same on all its ranks.
            waits: whether the call is synchronous.
            exchanged: of an all-to-all, as `exchanged_by` reads it.
            peer: of a send or a recv, the rank at the other end, where it is known.
        """
        largest = max(tensors, key=lambda t: t.numel(), default=None)
        elements = full_elements(op, tensors, len(group))
        event = Event(
            op=op,
            reduce_op=reduce_op if op in REDUCING else None,
            group=group,
            dtype="" if largest is None else str(largest.dtype).removeprefix("torch."),
            shape=() if largest is None else tuple(largest.shape),
            elements=elements,
            bytes=0 if largest is None else elements * largest.element_size(),
            phase=self._phase_of(op),
            where=callsite.line(),
            module=self.origin.module(),
            overwrites=self.saved.holds(written(op, tensors)),
            clips=self.clips,
            peer=peer,
        )
        self.events.append(event)
        if self.announcer is not None:
            awaits = awaited(op, tensors, group, exchanged) if waits else ()
            self.announcer.announce(event, communicator, awaits, exchanged or ((), ()))

    def count(self, name: str) -> None:
        """One more run of a kernel, or an operator, where it is a witness."""
        if name in self.witnesses:
            what = (self._phase_of(name), name)
            self.counted[what] = self.counted.get(what, 0) + 1

    def _phase_of(self, op: str) -> Phase:
        """Under a candidate's own schedule, which runs forwards and backwards as it likes: whether
        autograd is at work. A message between stages may belong to either."""
        if self.phase is not Phase.SCHEDULE or op in POINT_TO_POINT:
            return self.phase
        outside = torch._C._current_graph_task_id() == -1
        return Phase.FORWARD if outside else Phase.BACKWARD


@functools.cache
def _is_c10ds(func: Any) -> bool:
    return func.namespace in _NAMESPACES
