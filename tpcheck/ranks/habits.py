"""What a model does besides its results: it leaves its inputs, upstream gradients and what earlier
passes have returned as they are."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.protocol.messages import RankReport
from tpcheck.ranks.kept import Kept
from tpcheck.tensors.forms import odd
from tpcheck.tensors.live import is_dtensor, local
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
        self._outputs: Mapping[str, Tensor] = {}
        self._earlier: list[tuple[Kept, Habit, Pass]] = []  # of the pass before

    @contextmanager
    def in_pass(self, module: Any, at: Pass, leaves: Mapping[str, Tensor]) -> Iterator[None]:
        """A forward and its backward run in the block, on these inputs."""
        inputs, self._upstream, self._outputs = self._kept(leaves), Kept({}), {}
        yield
        self._compare(inputs, Habit.CHANGES_INPUT, at)
        own = _storages(module)
        self._compare(self._upstream, Habit.CHANGES_COTANGENT, at, own)
        for kept, habit, earlier in self._earlier:
            self._compare(kept, habit, earlier)
        gradients = {name: t.grad for name, t in leaves.items() if t.grad is not None}
        self._earlier = [
            (self._kept(self._outputs, own), Habit.REUSES_OUTPUT, at),
            (self._kept(gradients, own), Habit.REUSES_GRADIENT, at),
        ]

    def returns(self, outputs: Mapping[str, Tensor]) -> None:
        """The pass's forward has returned these."""
        self._outputs = outputs

    def begins_from(self, upstream: Mapping[str, Tensor]) -> None:
        """The pass's backward is about to begin from these, by the outputs' names."""
        self._upstream = self._kept({UPSTREAM + name: t for name, t in upstream.items()})

    def _kept(self, tensors: Mapping[str, Tensor], own: Container[int | None] = ()) -> Kept:
        """Those that must not change: what is declared may, and what is the module's own."""
        parts = {n: _plain(t) for n, t in tensors.items() if n not in self.overwrites}
        return Kept({name: part for name, part in parts.items() if _storage(part) not in own})

    def _compare(self, kept: Kept, habit: Habit, at: Pass, own: Container[int | None] = ()) -> None:
        each = kept.overwritten(habit) if habit in _RETURNED else kept.changed(habit)
        for name, found in each:
            if (name, habit) in self._seen or _storage(kept.tensors[name]) in own:
                continue
            self._seen.add((name, habit))
            tensor = str(InPass(name, at))
            mismatch = Mismatch(tensor, Kind.DISCIPLINE, self._report.rank, detail=found)
            self._report.mismatches.append(mismatch)


def _plain(tensor: Tensor) -> Tensor:
    """What has the memory: a DTensor's part, and what a collective has filled by now."""
    part = local(tensor.detach()) if is_dtensor(tensor) else tensor
    if type(part) is Tensor:
        return part
    if odd(part) is None:  # a class of the candidate's own
        with torch._C.DisableTorchFunctionSubclass():
            return part.detach().as_subclass(Tensor)
    wait = getattr(part, "trigger_wait", None)  # an AsyncCollectiveTensor's
    return wait() if callable(wait) else part


def _storage(tensor: Tensor) -> int | None:
    """The address of its memory; None where it has none of its own."""
    return tensor.untyped_storage().data_ptr() if odd(tensor) is None else None


def _storages(module: Any) -> frozenset[int | None]:
    """The memory of a module's tensors and of its gradients. Autograd puts what a backward has
    returned in the place of a gradient, so that these may be an upstream gradient's, or an
    input's, to which the next one is then added."""
    own = tensors_of(module).values() if isinstance(module, nn.Module) else ()
    gradients = (tensor.grad for tensor in own if tensor.is_leaf and tensor.grad is not None)
    return frozenset(_storage(_plain(tensor)) for tensor in (*own, *gradients)) - {None, 0}
