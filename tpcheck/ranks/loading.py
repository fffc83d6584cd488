"""Loads the rank's shard of every parameter and checks how the candidate placed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.comms.trace import Recorder
from tpcheck.evidence import Elsewhere, Misheld
from tpcheck.placement import Entry, Only, Replicate, by_axis, take
from tpcheck.plan.findings import mismatches
from tpcheck.plan.parallelized import findings as unlike_plan
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.live import is_dtensor, live_entry, local, partition_entry, sharded_by_hand
from tpcheck.tensors.names import parameters_of, tensors_of
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind


class Loader:
    """Fills `report` with how each parameter is placed, and what is wrong with that."""

    def __init__(
        self, work: Work, problem: Problem, recorder: Recorder, report: RankReport
    ) -> None:
        self.work, self.problem, self.recorder, self.report = work, problem, recorder, report
        self.case, self.rank = work.case, report.rank
        self.held: dict[str, Tensor] = {}  # parameters and buffers of the candidate

    def load(self, module: Any, loader: Callable[..., Any] | None) -> bool:
        """Copies the rank's shard of every parameter in; False where one can't be loaded.

        Args:
            loader: the check's own `load`, tried after: it must fill all with the same.
        """
        own = self.held = tensors_of(module) if isinstance(module, nn.Module) else {}
        params = parameters_of(module) if own else {}
        fits = True
        for name in self.problem.params:
            if name not in own and self._has(self.work.params[name]):
                self._misheld(name, Fault.MISSING, built=_instead_of_a_module(module))
                fits = False
        for name, tensor in own.items():
            full = self.problem.params.get(name)
            if full is None:
                if name in params:
                    self._misheld(name, Fault.UNEXPECTED)
                    fits = False
                continue
            if not self._has(self.work.params[name]):
                where = elsewhere(self.work.params[name], self.case, self.rank)
                self._misheld(name, Fault.ELSEWHERE, elsewhere=where)
            fits = self._load_one(name, tensor, full) and fits
        if fits and loader:
            with torch.no_grad():
                for tensor in own.values():
                    if tensor.is_floating_point():
                        local(tensor).fill_(torch.nan)
                with self.recorder:
                    loader(module, dict(self.problem.params))
            for name, tensor in own.items():
                if name in self.problem.params:
                    self._check_storage(name, tensor)
        if self.case.tp > 1 and params and not self.work.named:
            self._check_something_is_sharded(list(params))
        if self.work.plan is not None and params:
            found = unlike_plan(module, self.work.plan, self.problem.params)
            self.report.mismatches += mismatches(found, self.rank)
        return fits

    def _load_one(self, name: str, tensor: Tensor, full: Tensor) -> bool:
        entry = self._entry_of(name, tensor, full)
        self.report.entries[name] = entry
        if only(self.work.params[name]).keys() & effective(by_axis(entry)).keys():
            return False  # spread over ranks that have other parameters: they can't work together
        expected = take(full, entry, case=self.case, rank=self.rank)
        here = local(tensor)
        sharded = placement.is_sharded(entry, self.case)
        if here.shape != expected.shape:
            part, axes = self._whole_along(here.shape, full, entry)
            self._misheld(
                name,
                Fault.SHAPE if part is None else Fault.WHOLE,
                shape=tuple(here.shape),
                expected_shape=tuple(expected.shape),
                axes=axes,
            )
            if part is None:
                return False
            expected = part
        elif sharded:
            self._check_storage(name, tensor)
        with torch.no_grad():
            if here.is_floating_point():
                here.fill_(torch.nan)
            here.copy_(expected)
        return True

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

    def _check_storage(self, name: str, tensor: Tensor) -> None:
        """A shard that is a view keeps the whole tensor in memory."""
        full, here = self.problem.params[name], local(tensor)
        held = here.untyped_storage().nbytes()
        if held >= bytes_of(full) > bytes_of(here):
            self._misheld(name, Fault.STORAGE, storage=held, expected=bytes_of(here))

    def _entry_of(self, name: str, tensor: Tensor, full: Tensor) -> Entry:
        """The placement that the candidate's tensor declares, else the layout's."""
        entry = self.work.params[name]
        live = live_entry(tensor) if is_dtensor(tensor) else partition_entry(tensor, full)
        if live is None:
            return entry
        live = sharded_by_hand(tensor, full, entry, self.case, self.rank) | by_axis(live)
        has, wants = effective(by_axis(live)), effective(by_axis(entry))
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


def _instead_of_a_module(candidate: Any) -> str | None:
    """What the candidate's `build` returned, where that can have no parameters."""
    if isinstance(candidate, nn.Module):
        return None
    return "None" if candidate is None else f"a {type(candidate).__name__}"


def only(entry: Entry) -> dict[str, Only]:
    return {axis: own for axis, own in by_axis(entry).items() if isinstance(own, Only)}


def effective(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {axis: own for axis, own in entry.items() if not isinstance(own, (Replicate, Only))}


def bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def elsewhere(entry: Entry, case: Case, rank: int) -> Elsewhere:
    """Where a rank is, and where the layout has the tensor."""
    here, axes = case.coordinates(rank), only(entry)
    return Elsewhere(
        here={axis: here[axis] for axis in axes},
        due={axis: place.coordinate for axis, place in axes.items()},
    )
