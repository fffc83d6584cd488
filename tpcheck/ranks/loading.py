"""A rank's shards: each parameter of the candidate is given its part, and looked at how it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.comms.trace import Recorder
from tpcheck.placement import Entry, Only, Replicate, by_axis, take
from tpcheck.plan.in_check import mismatch
from tpcheck.plan.parallelized import findings as unlike_plan
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.live import cut_by_hand, is_dtensor, live_entry, local, partition_entry
from tpcheck.tensors.names import parameters_of, tensors_of
from tpcheck.verdict import Mismatch

if TYPE_CHECKING:
    from tpcheck.protocol.messages import RankReport, Work


class Loader:
    """Fills `report` with how each parameter lies, its bytes, and what is wrong with that."""

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
                reason = f"the candidate has no {name!r}{_instead_of_a_module(module)}"
                self._sharding(name, "missing", {"reason": reason})
                fits = False
        for name, tensor in own.items():
            full = self.problem.params.get(name)
            if full is None:
                if name in params:
                    reason = f"the reference has no parameter {name!r}"
                    self._sharding(name, "unexpected", {"reason": reason})
                    fits = False
                continue
            if not self._has(self.work.params[name]):
                detail = {
                    "reason": f"{name} {elsewhere(self.work.params[name], self.case, self.rank)}"
                }
                self._sharding(name, "elsewhere", detail)
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
            for finding in unlike_plan(module, self.work.plan, self.problem.params):
                self.report.mismatches.append(mismatch(finding, self.rank))
        held = {id(p): local(p) for p in params.values()}
        self.report.bytes = sum(bytes_of(p) for p in held.values())
        return fits

    def _load_one(self, name: str, tensor: Tensor, full: Tensor) -> bool:
        entry = self._entry_of(name, tensor, full)
        self.report.entries[name] = entry
        if only(self.work.params[name]).keys() & effective(by_axis(entry)).keys():
            return False  # spread over ranks that have other parameters: they can't work together
        expected = take(full, entry, case=self.case, rank=self.rank)
        here = local(tensor)
        sharded = placement.is_sharded(entry, self.case)
        detail: dict[str, Any]
        if here.shape != expected.shape:
            detail = {"shape": list(here.shape), "expected_shape": list(expected.shape)}
            part, axes = self._whole_along(here.shape, full, entry)
            if axes:
                detail["axes"] = axes
            self._sharding(name, "shape" if part is None else "whole", detail)
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
    ) -> tuple[Tensor | None, str]:
        """What a rank holds that does not cut a tensor along one of its axes, or along any, and the
        axis where others cut it; None where no such part has this shape."""
        if shape == full.shape:
            return full, ""
        own = by_axis(entry)
        for axis in own:
            others = {other: placed for other, placed in own.items() if other != axis}
            part = take(full, others, case=self.case, rank=self.rank)
            if part.shape == shape:
                return part, axis
        return None, ""

    def _check_something_is_sharded(self, names: list[str]) -> None:
        """A layout that names no parameter is read from the candidate: it must shard some."""
        live = self.report.entries
        found = [live[name] for name in names if name in live]
        if not any(placement.is_sharded(entry, self.case, axis="tp") for entry in found):
            reason = "no parameter is sharded, and the layout declares none as replicated"
            self._sharding(names[0], "none", {"reason": reason, "parameters": len(names)})

    def _check_storage(self, name: str, tensor: Tensor) -> None:
        """A shard that is a view keeps the whole tensor in memory."""
        full, here = self.problem.params[name], local(tensor)
        held = here.untyped_storage().nbytes()
        if held >= bytes_of(full) > bytes_of(here):
            detail = {"storage": held, "expected": bytes_of(here)}
            self._sharding(name, "storage", detail)

    def _entry_of(self, name: str, tensor: Tensor, full: Tensor) -> Entry:
        """The placement that the candidate's tensor declares, else the layout's."""
        entry = self.work.params[name]
        live = live_entry(tensor) if is_dtensor(tensor) else partition_entry(tensor, full)
        if live is None:
            return entry
        live = cut_by_hand(tensor, full, entry, self.case, self.rank) | by_axis(live)
        has, wants = effective(by_axis(live)), effective(by_axis(entry))
        if name in self.work.named and has != wants:
            # all that it has is right, and some axis is missing: held whole along that one
            whole = has.items() <= wants.items()
            detail = {"placement": str(live), "expected_placement": str(entry)}
            detail["axes"] = ", ".join(wants.keys() - has.keys())
            self._sharding(name, "whole" if whole else "placement", detail)
        return {**only(entry), **by_axis(live)}

    def _has(self, entry: Entry) -> bool:
        """Whether this rank is to have any of a tensor that lies so."""
        return placement.holds(entry, case=self.case, rank=self.rank)

    def _sharding(self, name: str, fault: str, detail: dict[str, Any]) -> None:
        detail = {"fault": fault, **detail}
        self.report.mismatches.append(Mismatch(name, "sharding", self.rank, detail=detail))


def _instead_of_a_module(candidate: Any) -> str:
    """What the candidate's `build` returned, where that can have no parameters."""
    if isinstance(candidate, nn.Module):
        return ""
    what = "None" if candidate is None else f"a {type(candidate).__name__}"
    return f": its build(case, mesh) returned {what}, not a module"


def only(entry: Entry) -> dict[str, Only]:
    return {axis: own for axis, own in by_axis(entry).items() if isinstance(own, Only)}


def effective(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {axis: own for axis, own in entry.items() if not isinstance(own, (Replicate, Only))}


def bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def elsewhere(entry: Entry, case: Case, rank: int) -> str:
    """Where a rank is, and where the layout has the tensor."""
    here = case.coordinates(rank)
    axes = only(entry)
    own = ", ".join(f"{axis}={here[axis]}" for axis in axes)
    due = ", ".join(f"{axis}={place.coordinate}" for axis, place in axes.items())
    return f"is on the ranks of {own}; the layout has it on those of {due} only"
