"""In which collective a rank waits: where some are asynchronous it may be another than the last
that it entered, or none.

Python waits for what a call of the process group has handed out, a `Work`, and for the result of a
functional collective. Both are known here by the announcement that they belong to. What C++ enters
and waits for on its own, as DDP does, is not seen: of that the last announcement tells. So it does
in the rest of a case in which a rank has asked for the future of a work, or whether it is
completed: whoever waits by those does not say so.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch import Tensor

from tpcheck.comms.board import Board
from tpcheck.comms.region import IN_LAST

#: The process group's methods that hand out a `Work`; not each version of torch has all of them.
_METHODS = (
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)
_entered = threading.local()  # from an announcement to the call that it was made in
_belongs: WeakKeyDictionary[Any, Posted] = WeakKeyDictionary()
#: Rank → the last case in which it may wait without saying so.
_unseen: dict[int, int] = {}


@dataclass(frozen=True)
class Posted:
    """The `number`-th announcement, from 1, of a rank in one case, by its own thread: others may
    wait while that goes on."""

    board: Board
    rank: int
    epoch: int
    number: int
    thread: int = field(default_factory=threading.get_ident)

    def left(self) -> None:
        """The call that entered it has returned, and whoever waits for it will say so."""
        seen = _unseen.get(self.rank) != self.epoch
        self.board.waits(self.rank, self.epoch, None if seen else IN_LAST)

    def unseen(self) -> None:
        """Whoever waits for it may not say so."""
        _unseen[self.rank] = self.epoch
        self.left()

    @contextlib.contextmanager
    def waited_for(self) -> Iterator[None]:
        if threading.get_ident() != self.thread:
            yield
            return
        self.board.waits(self.rank, self.epoch, self.number)
        try:
            yield
        finally:
            self.left()


def entered(posted: Posted) -> None:
    """This thread is about to enter what it has announced."""
    if hasattr(dist.Work.wait, "is_watched"):
        _entered.posted = posted


def _handed_out() -> Posted | None:
    """What this thread has entered in the call that returns now."""
    posted: Posted | None = getattr(_entered, "posted", None)
    _entered.posted = None
    if posted is not None:
        posted.left()
    return posted


@dataclass
class Results:
    """Those of one rank's functional collectives in one case, by where they are in memory."""

    _of: dict[int, Posted] = field(default_factory=dict)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an operator of c10d's that has been announced, where it is a collective."""
        if "functional" not in func.namespace:
            return func(*args, **kwargs)
        posted = None
        if func.overloadpacket.__name__ == "wait_tensor" and isinstance(args[0], Tensor):
            posted = self._of.get(args[0].data_ptr())
        with contextlib.nullcontext() if posted is None else posted.waited_for():
            result = func(*args, **kwargs)
        if (own := _handed_out()) is not None:
            for tensor in result if isinstance(result, (list, tuple)) else [result]:
                if isinstance(tensor, Tensor) and tensor.numel():
                    self._of[tensor.data_ptr()] = own
        return result


def watch_works() -> None:
    """Wraps what hands out a `Work`, and what waits for one, once per process. Not where waiting
    returns at once and leaves it to the device to wait, as NCCL's does."""
    for method in _METHODS:
        _wrap(dist.ProcessGroup, method, _handing_out)
    for method in ("wait", "synchronize"):
        _wrap(dist.Work, method, _waiting)
    for method in ("get_future", "is_completed"):
        _wrap(dist.Work, method, _asking)


def _wrap(owner: Any, method: str, by: Any) -> None:
    original = getattr(owner, method, None)
    if original is None or hasattr(original, "is_watched"):
        return
    wrapped: Any = functools.wraps(original)(by(original))
    wrapped.is_watched = True
    setattr(owner, method, wrapped)


def _handing_out(original: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        _entered.posted = None  # what C++ has entered on its own
        work = original(*args, **kwargs)
        if (posted := _handed_out()) is not None and work is not None:
            _belongs[work] = posted
        return work

    return call


def _waiting(original: Any) -> Any:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (posted := _belongs.get(self)) is None:
            return original(self, *args, **kwargs)
        with posted.waited_for():
            return original(self, *args, **kwargs)

    return wait


def _asking(original: Any) -> Any:
    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (posted := _belongs.get(self)) is not None:
            posted.unseen()
        return original(self, *args, **kwargs)

    return ask
