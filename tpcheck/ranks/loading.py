"""Loads the rank's shard of every parameter and checks how the candidate placed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.comms.trace import Recorder
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import Elsewhere, Misheld
from tpcheck.placement import Entry, Only, Replicate, by_axis, take
from tpcheck.plan.findings import mismatches
from tpcheck.plan.parallelized import findings as unlike_plan
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Problem
from tpcheck.ranks import loaded
from tpcheck.ranks.reading import counted
from tpcheck.ranks.views import Views
from tpcheck.tensors.forms import INTEGERS, is_freed
from tpcheck.tensors.live import (
    is_dtensor,
    local,
    marked_entry,
    partition_entry,
    placed_whole,
    says_how,
)
from tpcheck.tensors.meshes import axes_in
from tpcheck.tensors.names import computed_buffers, parameters_of, tensors_of
from tpcheck.tensors.places import in_words_of
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind, Phase

#: By which the files of a checkpoint are called where a parameter's name stands otherwise.
CHECKPOINT = "checkpoint"


class Loader:
    """Fills `report` with how each parameter is placed, and what is wrong with that."""

    def __init__(
        self, work: Work, problem: Problem, recorder: Recorder, report: RankReport
    ) -> None:
        self.work, self.problem, self.recorder, self.report = work, problem, recorder, report
        self.case, self.rank = work.case, report.rank
        self.held: dict[str, Tensor] = {}  # parameters and buffers of the candidate
        self.views = Views(self.case, report)
        self.read: int | None = None  # bytes of a checkpoint
        self.apart: set[str] = set()  # computed buffers that are not the reference's
        self.found = list(report.mismatches)  # before
        computed = work.computed
        #: What a checkpoint of the reference holds, full.
        self.state = {n: full for n, full in problem.params.items() if n not in computed}

    def load(
        self, module: Any, loader: Callable[..., Any] | None, most: float | None = None
    ) -> Any:
        """Copies the rank's shard of every parameter in; returns the module to run, None where one
        can't be loaded.

        Args:
            loader: the check's own `load`, tried after: it must fill all with the same, in place,
                with tensors of its own, or in a module of its own. What these are is what counts.
            most: how many times the bytes of the rank's part it may read of a checkpoint.
        """
        self.recorder.phase = Phase.LOAD
        built = _integers_of(module) if loader is not None else {}
        fits = self._hold(module, fill=True, last=loader is None)
        if loader is not None:
            try:
                module = self._load_by(loader, module, built)
            except Exception:
                if fits:
                    raise
                return None  # it may well fail where the parameters are not what they should be
            fits = self._hold(module, fill=False, last=True)
        if fits:
            _require_memory(self.held)
            found = self._loaded()
            found.compare(built)
            self.apart = found.computed()
            self._judge_reads(most)
        return module if fits else None

    def due(self) -> dict[str, Tensor]:
        """The rank's part of what a checkpoint has, as the candidate's own tensors are placed."""
        return self._loaded().due()

    def _loaded(self) -> loaded.Loaded:
        return loaded.Loaded(self.work, self.problem, self.report, self.state, self.held)

    def _hold(self, module: Any, *, fill: bool, last: bool) -> bool:
        """Judges anew how the module holds what a checkpoint has; its storages once it is last."""
        own = self.held = tensors_of(module) if isinstance(module, nn.Module) else {}
        params = parameters_of(module) if own else {}
        self.report.mismatches, self.views = list(self.found), Views(self.case, self.report)
        fits, unknown = True, params.keys() - self.work.computed - _known(own, self.state)
        for name in self.state:
            if name not in own and self._has(self.work.params[name]):
                self._misheld(name, Fault.MISSING, built=_instead_of_a_module(module))
                fits = False
        for name, tensor in own.items():
            full = self.state.get(name)
            if full is None:
                if name in unknown:
                    self._misheld(name, Fault.UNEXPECTED)
                    fits = False
                continue
            if not self._has(self.work.params[name]):
                where = elsewhere(self.work.params[name], self.case, self.rank)
                self._misheld(name, Fault.ELSEWHERE, elsewhere=where)
            part = self._part_of(name, tensor, full, whole=fill)
            fits = part is not None and fits
            if fill and part is not None:
                loaded.fill(local(tensor), part)
        due = self.state.keys() | self.work.computed
        known = {name: tensor for name, tensor in own.items() if name in due}
        for name, kept in self.views.keeping(module, known) if last else ():
            self._misheld(name, Fault.STORAGE, **kept)
        if self.case.tp > 1 and params and not self.work.named:
            self._check_something_is_sharded(list(params))
        if self.work.plan is not None and params:
            axes, every = partial(axes_in, case=self.case), self.problem.params
            found = unlike_plan(module, self.work.plan, tp=self.case.tp, axes=axes, full=every)
            self.report.mismatches += mismatches(found, self.rank)
        return fits

    def _load_by(self, loader: Callable[..., Any], module: Any, built: Mapping[str, Tensor]) -> Any:
        """The check's own loader: from NaN, and of integers and bools from what the module was
        built with. Buffers that the candidate computes are its own. Returns the module that it has
        made, where it has made one."""
        own = computed_buffers(module) if isinstance(module, nn.Module) else frozenset()
        computed = own - self.state.keys() | self.work.computed
        with torch.no_grad():
            for name, tensor in self.held.items():
                if is_freed(local(tensor)):
                    continue
                if name in built:
                    local(tensor).copy_(built[name])
                elif tensor.is_floating_point() and name not in computed:
                    local(tensor).fill_(torch.nan)
            with self.recorder:
                saved = self.work.checkpoint
                if saved and self.recorder.dispatch:  # on processes, which have files of their own
                    made, self.read = counted(loader, module, Path(saved))
                else:
                    made = loader(module, Path(saved) if saved else dict(self.state))
        return made if isinstance(made, nn.Module) else module

    def _judge_reads(self, most: float | None) -> None:
        if self.read is None:
            return
        parts = self.due().items()
        due = sum(part.numel() * self.held[name].element_size() for name, part in parts)
        self.report.bytes[CHECKPOINT] = self.read, due
        if most is not None and self.read > most * due:
            self._misheld(CHECKPOINT, Fault.READ, storage=self.read, expected=due)

    def _part_of(self, name: str, tensor: Tensor, full: Tensor, *, whole: bool) -> Tensor | None:
        """What the rank is to hold, as its own tensor is placed; None where it can't be that.

        Args:
            whole: whether it can be all along an axis, too, which is wrong, and can be run.
        """
        entry = self._entry_of(name, tensor, full)
        self.report.entries[name] = entry
        if only(self.work.params[name]).keys() & effective(by_axis(entry)).keys():
            return None  # spread over ranks that have other parameters: they can't work together
        expected = take(full, entry, case=self.case, rank=self.rank)
        here = local(tensor)
        if here.shape != expected.shape:
            part, axes = self._whole_along(here.shape, full, entry)
            self._misheld(
                name,
                Fault.SHAPE if part is None else Fault.WHOLE,
                shape=tuple(here.shape),
                expected_shape=tuple(expected.shape),
                axes=axes,
                placement=str(entry) if says_how(tensor) else None,
            )
            return part if whole else None
        if placement.is_sharded(entry, self.case):
            self.views.note(name, full, tensor)
        return expected

    def _whole_along(
        self, shape: torch.Size, full: Tensor, entry: Entry
    ) -> tuple[Tensor | None, str | None]:
        """What a rank holds of a tensor that is not sharded along one of its axes, or along none,
        and the axis along which others shard it; None where no such part has this shape."""
        if shape == full.shape:
            return full, None
        own = by_axis(entry)
        for axis in own:
            others = {other: placed for other, placed in own.items() if other != axis}
            part = take(full, others, case=self.case, rank=self.rank)
            if part.shape == shape:
                return part, axis
        return None, None

    def _check_something_is_sharded(self, names: list[str]) -> None:
        """A layout that names no parameter is read from the candidate: it must shard some."""
        live = self.report.entries
        found = [live[name] for name in names if name in live]
        if not any(placement.is_sharded(entry, self.case, axis="tp") for entry in found):
            self._misheld(names[0], Fault.NONE_SHARDED, parameters=len(names))

    def _entry_of(self, name: str, tensor: Tensor, full: Tensor) -> Entry:
        """The placement that the candidate's tensor declares, else the layout's."""
        entry = self.work.params[name]
        about = tensor, full, entry, self.case, self.rank
        live = placed_whole(*about) if is_dtensor(tensor) else partition_entry(tensor, full)
        if live is None:
            marked = {} if name in self.work.named else marked_entry(tensor, full)
            return {**only(entry), **marked} if marked else entry
        wants = effective(by_axis(entry))
        has = in_words_of(wants, effective(by_axis(live)), tuple(full.shape), self.case)
        if name in self.work.named and has != wants:
            # all that it has is right, and some axis is missing: not sharded along that one
            whole = has.items() <= wants.items()
            self._misheld(
                name,
                Fault.WHOLE if whole else Fault.PLACEMENT,
                placement=str(live),
                expected_placement=str(entry),
                axes=", ".join(wants.keys() - has.keys()),
            )
        return {**only(entry), **by_axis(live)}

    def _has(self, entry: Entry) -> bool:
        """Whether this rank is to have any of a tensor that is placed so."""
        return placement.holds(entry, case=self.case, rank=self.rank)

    def _misheld(self, name: str, fault: Fault, **more: Any) -> None:
        detail = Misheld(fault, **more)
        self.report.mismatches.append(Mismatch(name, Kind.SHARDING, self.rank, detail=detail))


def _known(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> set[str]:
    """The names of what the reference has, those that it has not among them: second ones."""
    there = {id(tensor) for name, tensor in own.items() if name in state}
    return {name for name, tensor in own.items() if id(tensor) in there}


def _require_memory(held: Mapping[str, Tensor]) -> None:
    for name, tensor in held.items():
        if tensor.is_meta or is_freed(local(tensor)):
            where = "on the meta device, " if tensor.is_meta else ""
            raise InvalidArgument(
                f"{name} is {where}without memory, after it was loaded; give it some in build or "
                "in load, by the module's to_empty(device=…)"
            )


def _integers_of(module: Any) -> dict[str, Tensor]:
    """Integers and bools with memory, as the module was built with them."""
    own = tensors_of(module) if isinstance(module, nn.Module) else {}
    exact = {n: t for n, t in own.items() if t.dtype in INTEGERS and not t.is_meta}
    exact = {name: tensor for name, tensor in exact.items() if not is_freed(local(tensor))}
    return {name: local(t).detach().clone() for name, t in exact.items()}


def _instead_of_a_module(candidate: Any) -> str | None:
    """What the candidate's `build` returned, where that can have no parameters."""
    if isinstance(candidate, nn.Module):
        return None
    return "None" if candidate is None else f"a {type(candidate).__name__}"


def only(entry: Entry) -> dict[str, Only]:
    return {axis: own for axis, own in by_axis(entry).items() if isinstance(own, Only)}


def effective(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {axis: own for axis, own in entry.items() if not isinstance(own, (Replicate, Only))}


def elsewhere(entry: Entry, case: Case, rank: int) -> Elsewhere:
    """Where a rank is, and where the layout has the tensor."""
    here, axes = case.coordinates(rank), only(entry)
    return Elsewhere(
        here={axis: here[axis] for axis in axes},
        due={axis: place.coordinate for axis, place in axes.items()},
    )
