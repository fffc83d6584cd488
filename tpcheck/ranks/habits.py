"""What a model does besides its results: it leaves its inputs, upstream gradients and what earlier
passes have returned as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from tpcheck.protocol.messages import RankReport
from tpcheck.ranks.discipline import Kept
from tpcheck.tensors.in_place import handed
from tpcheck.tensors.live import local
from tpcheck.tensors.names import UPSTREAM, InPass, Pass, tensors_of
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Habit, Kind

_RETURNED = (Habit.REUSES_OUTPUT, Habit.REUSES_GRADIENT)


class Habits:
    """Of one candidate on this rank.

    Args:
        overwrites: inputs, outputs and upstream gradients ("d output") that it may change.
        report: is given each mismatch, one of each tensor and habit at most.
    """

    def __init__(self, overwrites: Collection[str], report: RankReport) -> None:
        self.overwrites, self._report = overwrites, report
        self._seen: set[tuple[str, Habit]] = set()
        self._upstream = Kept({})
        self._outputs: dict[str, Tensor] = {}
        self._earlier: list[tuple[Kept, Habit, Pass]] = []  # of the pass before

    def given(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a call gets for these: what it may change is not a leaf, or autograd forbids it."""
        changing = {n for n, t in inputs.items() if n in self.overwrites and t.requires_grad}
        return {name: handed(t) if name in changing else t for name, t in inputs.items()}

    @contextmanager
    def in_pass(self, at: Pass, leaves: Mapping[str, Tensor]) -> Iterator[None]:
        """A forward and its backward run in the block, on these inputs."""
        inputs, self._upstream, self._outputs = Kept(leaves), Kept({}), {}
        yield
        self._compare(inputs, Habit.CHANGES_INPUT, at)
        self._compare(self._upstream, Habit.CHANGES_COTANGENT, at)
        for kept, habit, earlier in self._earlier:
            self._compare(kept, habit, earlier)
        gradients = {name: _plain(t.grad) for name, t in leaves.items() if t.grad is not None}
        self._earlier = [
            (Kept(self._outputs), Habit.REUSES_OUTPUT, at),
            (Kept(gradients), Habit.REUSES_GRADIENT, at),
        ]

    def returns(self, outputs: Mapping[str, Tensor], module: Any) -> None:
        """The pass's forward has returned these; what is the module's own may change with it."""
        own = tensors_of(module).values() if isinstance(module, nn.Module) else ()
        held = {_plain(tensor).untyped_storage().data_ptr() for tensor in own}
        parts = {name: _plain(output) for name, output in outputs.items()}
        self._outputs = {
            name: part
            for name, part in parts.items()
            if part.untyped_storage().data_ptr() not in held
        }

    def begins_from(self, upstream: Mapping[str, Tensor]) -> None:
        """The pass's backward is about to begin from these, by the outputs' names."""
        self._upstream = Kept({UPSTREAM + name: _plain(t) for name, t in upstream.items()})

    def _compare(self, kept: Kept, habit: Habit, at: Pass) -> None:
        for name, found in kept.changed(habit):
            if name in self.overwrites or (name, habit) in self._seen:
                continue
            if habit in _RETURNED and not found.elements:
                continue  # the candidate's own memory, of which it may use another part
            self._seen.add((name, habit))
            tensor = str(InPass(name, at))
            mismatch = Mismatch(tensor, Kind.DISCIPLINE, self._report.rank, detail=found)
            self._report.mismatches.append(mismatch)


def _plain(tensor: Tensor) -> Tensor:
    """What has the memory: a DTensor's part, and what a collective has filled by now."""
    part = local(tensor.detach())
    wait = getattr(part, "trigger_wait", None)  # an AsyncCollectiveTensor's
    return wait() if callable(wait) else part
