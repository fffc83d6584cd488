"""`Event`: one collective as one rank entered it. A trace is a list of them. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpcheck.vocabulary import Phase

_SUMMING = ("all_reduce", "reduce_scatter", "reduce")
_MOVING = ("all_gather", "all_to_all", "broadcast", "gather", "scatter", "send", "recv", "barrier")
#: What may be a collective's op.
COLLECTIVES = frozenset((*_SUMMING, *_MOVING))
POINT_TO_POINT = ("send", "recv")
#: Those that add up what the ranks bring.
SUMS = frozenset({"all_reduce", "reduce_scatter"})
# In these every rank of the group must bring the same shape.
_UNIFORM = {"all_reduce", "reduce_scatter", "broadcast", "reduce"}


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
    phase: Phase
    where: str
    module: str = ""  # of the candidate, by its qualified name
    overwrites: bool = False  # in place, a tensor that autograd has saved
    clips: bool = False  # on the way to the norm by which gradients are clipped
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
        elif self.op == "recv":
            ranks = f"from any of {ranks.removeprefix('over ')}"
        of = f" of {self.module}" if self.module else ""
        at = f" at {self.where}" if self.where else ""
        return f"{op} {self.dtype}{list(self.shape)} {ranks} in {self.phase}{of}{at}"


def averaging(traces: Iterable[Sequence[Event]]) -> str:
    """The line at which ranks take a mean, as `mlp.py:41`; "" where there is none, or several."""
    where = {e.where for events in traces for e in events if e.reduce_op == "avg"}
    return where.pop() if len(where) == 1 else ""
