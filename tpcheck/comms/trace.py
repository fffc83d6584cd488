"""What a rank communicated: every collective with its op, reduce op, group, dtype, shape, bytes,
phase and the line of the candidate's code, in order.

On processes a `Recorder` sees c10d's operators as a dispatch mode, functional collectives
(DTensor's) and direct ones alike; the reduce op of a direct one is not visible there and is
noted on the way in (`watch_reduce_ops`). On threads the process group itself calls `record`.
"""

from __future__ import annotations

import functools
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._guards import TracingContext
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from tpcheck.bounds.compare import fingerprint
from tpcheck.comms import board, callsite
from tpcheck.comms.board import Board, Post
from tpcheck.comms.operands import (
    REDUCE_OPS,
    Exchanged,
    awaited,
    exchanged_by,
    full_elements,
    group_of,
    tensors_in,
    written,
)
from tpcheck.errors import CollectiveMismatch

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
POINT_TO_POINT = ("send", "recv")
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
# In these every rank of the group must bring the same shape.
_UNIFORM = {"all_reduce", "reduce_scatter", "broadcast", "reduce"}
_pending = threading.local()


@dataclass(frozen=True)
class Event:
    """One collective as one rank entered it."""

    op: str
    reduce_op: str | None
    group: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]
    elements: int  # of the full tensor: what is gathered, or what is scattered
    bytes: int
    phase: str
    where: str
    module: str = ""  # of the candidate, by its qualified name
    overwrites: bool = False  # in place, a tensor that autograd has saved
    peer: int | None = None  # of a send or a recv: the rank at the other end, where it is known

    def fingerprint(self) -> str:
        """What all ranks of the group, or both ends of a message, must have in common."""
        if self.op in POINT_TO_POINT:
            return f"message {self.dtype} {self.elements}"
        shape = str(list(self.shape)) if self.op in _UNIFORM else ""
        return f"{self.op}({self.reduce_op or ''}) {self.dtype}{shape}"

    def describe(self) -> str:
        """For people: `all_reduce(sum) float32[4, 8] over ranks 0,1 in forward at mlp.py:41`."""
        op = f"{self.op}({self.reduce_op})" if self.reduce_op else self.op
        ranks = f"over ranks {','.join(map(str, self.group))}"
        if self.peer is not None:
            ranks = f"{'to' if self.op == 'send' else 'from'} rank {self.peer}"
        of = f" of {self.module}" if self.module else ""
        at = f" at {self.where}" if self.where else ""
        return f"{op} {self.dtype}{list(self.shape)} {ranks} in {self.phase}{of}{at}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Recorder(TorchDispatchMode):
    """The trace of one rank in one case.

    Args:
        rank: this rank.
        board: where to announce, or None.
        epoch: the number of the case on the board.
        dispatch: whether to see c10d operators as a dispatch mode (not on threads).
    """

    hidden = False  # from Dynamo

    def __init__(
        self, rank: int, *, board: Board | None = None, epoch: int = 0, dispatch: bool = True
    ) -> None:
        super().__init__()
        self.rank, self.board, self.epoch, self.dispatch = rank, board, epoch, dispatch
        self.phase = "build"
        self.origin = callsite.Origin()
        self.events: list[Event] = []
        self._steps: dict[tuple[tuple[int, ...], int], int] = {}
        self.saved: list[Tensor] = []  # what autograd has saved, while `watch_saved` is on
        self.overwritten: set[str] = set()  # where something was saved that changed afterwards

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second a process, to wrap this class

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # off while a candidate compiles, on when its graph runs; else it runs eagerly

    def __enter__(self) -> Recorder:
        _hide_from_compiler(type(self))
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(t.__name__ == "DTensor" for t in types):
            return NotImplemented  # let DTensor unfold into local operations first
        kwargs = kwargs or {}
        if not self.dispatch or func.namespace not in _NAMESPACES:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        op = _OPS.get(name.removesuffix("_").removesuffix("_coalesced"))
        if op is None:
            return func(*args, **kwargs)
        ranks, communicator = group_of(args, kwargs)
        # functional collectives have no such flag, and never wait themselves
        waits = not next((a for a in args if isinstance(a, bool)), True)
        tensors, exchanged = list(tensors_in(args)), exchanged_by(op, args, len(ranks))
        more: dict[str, Any] = {"waits": waits, "exchanged": exchanged}
        if name in ("send", "recv_"):
            peer, tag = (a for a in args if isinstance(a, int))
            more["peer"], communicator = ranks[peer], f"{communicator} {tag}"
        self.record(op, tensors, ranks, _reduce_op(op, args), communicator, **more)
        return func(*args, **kwargs)

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
            reduce_op=reduce_op if op in _REDUCING else None,
            group=group,
            dtype="" if largest is None else str(largest.dtype).removeprefix("torch."),
            shape=() if largest is None else tuple(largest.shape),
            elements=elements,
            bytes=0 if largest is None else elements * largest.element_size(),
            phase=self._phase_of(op),
            where=callsite.line(),
            module=self.origin.module(),
            overwrites=self._is_saved(written(op, tensors)),
            peer=peer,
        )
        self.events.append(event)
        if self.board is not None and (op not in POINT_TO_POINT or peer is not None):
            awaits = awaited(op, tensors, group, exchanged) if waits else ()
            self._announce(event, self.board, communicator, awaits, exchanged or ((), ()))

    def watch_saved(self, *, bits: bool = False) -> Any:
        """A context in which every tensor saved for backward is noted (and kept alive); with
        `bits` also whether it is still the same when backward asks for it."""

        def pack(tensor: Tensor) -> tuple[Tensor, str, str]:
            if TracingContext.try_get() is not None:
                return tensor, "", ""  # what a compiler traces has no memory yet
            self.saved += _plain(tensor.detach())
            return tensor, _bits(tensor) if bits else "", callsite.line() if bits else ""

        def unpack(kept: tuple[Tensor, str, str]) -> Tensor:
            tensor, then, where = kept
            if then and _bits(tensor) != then:
                self.overwritten.add(where)
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def _is_saved(self, tensors: list[Tensor]) -> bool:
        kept = {t.untyped_storage().data_ptr() for t in self.saved if t.numel()} - {0}  # 0: freed
        return any(t.untyped_storage().data_ptr() in kept for t in tensors if t.numel())

    def _phase_of(self, op: str) -> str:
        """Under a candidate's own schedule, which runs forwards and backwards as it likes: whether
        autograd is at work. A message between stages may belong to either."""
        if self.phase != "schedule" or op in POINT_TO_POINT:
            return self.phase
        return "forward" if torch._C._current_graph_task_id() == -1 else "backward"

    def _announce(
        self,
        event: Event,
        shared: Board,
        communicator: str,
        awaits: tuple[int, ...],
        exchanged: Exchanged,
    ) -> None:
        members, which = event.group, f"of ranks {list(event.group)}"
        kind = "collective"
        if event.peer is not None:  # its two ends are a group, each direction one of its own
            ends = (self.rank, event.peer) if event.op == "send" else (event.peer, self.rank)
            members, which = tuple(sorted(ends)), f"from rank {ends[0]} to rank {ends[1]}"
            kind, communicator = "message", f"{communicator} {which}"
        text, name = event.describe(), board.digest(communicator)
        step = self._steps.get((members, name), 0)
        self._steps[members, name] = step + 1
        what = board.digest(event.fingerprint())
        mine = Post(members, step, what, text, name, awaits, *exchanged)
        shared.post(self.rank, self.epoch, mine)
        for peer in members:
            theirs = mine if peer == self.rank else shared.find(peer, self.epoch, mine.group, step)
            unlike = mine.unlike(self.rank, theirs, peer) if theirs else None
            if theirs is not None and unlike is not None:
                raise CollectiveMismatch(
                    f"{kind} {step + 1} {which}: {unlike}"
                    f"rank {self.rank} enters {text}, rank {peer} entered {theirs.text}"
                )
        circle = shared.circle(self.rank, self.epoch)
        if circle:
            waits = [
                f"waits in {shared.last(rank, self.epoch, 1)[0].text} for rank {awaited}"
                for rank, awaited in zip(circle, [*circle[1:], self.rank], strict=True)
            ]
            raise CollectiveMismatch(f"rank {self.rank} {', which '.join(waits)}")


def _hide_from_compiler(cls: Any) -> None:
    """Keeps Dynamo from compiling the mode itself, once a candidate has brought it in."""
    if "torch._dynamo" in sys.modules and not cls.hidden:
        cls.hidden = True  # once: every wrapper more would be a call more, for all cases to come
        cls.__torch_dispatch__ = torch._disable_dynamo(  # type: ignore[attr-defined]
            cls.__torch_dispatch__, recursive=True
        )


def _plain(tensor: Tensor) -> list[Tensor]:
    """The tensors inside a wrapper such as a DTensor, which has no storage of its own."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    parts = [getattr(tensor, name) for name in names]  # of a DTensor the mesh is among them
    return [inner for part in parts if isinstance(part, Tensor) for inner in _plain(part)]


def _bits(tensor: Tensor) -> str:
    """A digest of a plain tensor; nothing of a subclass, whose bits are not its own."""
    return fingerprint(tensor) if type(tensor) in (Tensor, torch.nn.Parameter) else ""


def _reduce_op(op: str, args: tuple[Any, ...]) -> str | None:
    noted = getattr(_pending, "reduce_op", None)
    _pending.reduce_op = None
    named = next((a for a in args if isinstance(a, str) and a in REDUCE_OPS), None)
    return (named or noted) if op in _REDUCING else None


def name_of(reduce_op: Any) -> str:
    """`ReduceOp.SUM` → `sum`."""
    return str(getattr(reduce_op, "op", reduce_op)).rsplit(".", 1)[-1].lower()


def watch_reduce_ops() -> None:
    """Wraps the process group's reducing methods, once a process, to note each reduce op."""
    for method in (
        "allreduce",
        "allreduce_coalesced",
        "reduce",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_single",
        "reduce_scatter_tensor_coalesced",
    ):
        original = getattr(dist.ProcessGroup, method, None)
        if original is None or hasattr(original, "__wrapped__"):
            continue
        setattr(dist.ProcessGroup, method, _noting(original))


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def noted(*args: Any, **kwargs: Any) -> Any:
        for arg in (*args, *kwargs.values()):
            if hasattr(arg, "reduceOp"):
                _pending.reduce_op = name_of(arg.reduceOp)
            elif isinstance(arg, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
                _pending.reduce_op = name_of(arg)
        return original(*args, **kwargs)

    return noted
