"""A rank's tensors against their slices of the reference: evidence goes into the rank's report,
suspect tensors aside for a second look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from tpcheck import placement
from tpcheck.axes import Axis, along
from tpcheck.bounds import compare, other_rules
from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.evidence import Absent, PlacedOtherwise, WrongForm
from tpcheck.placement import Entry, Partial, Placement, Replicate, by_axis, follows, summed, take
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.protocol.problem import Problem, Target
from tpcheck.protocol.scaling import SCALE, unscaled
from tpcheck.ranks.loading import elsewhere
from tpcheck.ranks.outputs import placed_otherwise
from tpcheck.ranks.recorders import add_up
from tpcheck.tensors import forms
from tpcheck.tensors.digest import fingerprint
from tpcheck.tensors.live import is_dtensor, local, placed_whole
from tpcheck.tensors.names import InPass, Key, Pass
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


class Judging:
    """Compares one rank's tensors with what is expected of them.

    Args:
        report: filled as it goes, so that a crash loses nothing of it.
        kept: where every tensor is put that a dump asks for, by `Key`.
    """

    def __init__(
        self,
        work: Work,
        problem: Problem,
        mesh: DeviceMesh,
        report: RankReport,
        kept: dict[str, Tensor],
    ) -> None:
        self.work, self.case, self.mesh = work, work.case, mesh
        self.problem = problem
        self.rank, self.report, self.kept = report.rank, report, kept
        self.targets = {(t.kind, t.name): t for t in problem.targets}
        self._steps = _by_step(self.targets.values())
        self.suspects: dict[str, Tensor] = {}
        self.decided: set[tuple[Kind, str]] = set()  # what is wrong by evidence of another kind
        self.gradients: dict[str, tuple[Entry, Tensor | None]] = {}  # of a step, for its norm

    def outputs(self, outputs: Mapping[str, Tensor], at: Pass, *, wider: bool = False) -> bool:
        """Compares what a forward returned; False where a shape is wrong, or one is missing.

        Args:
            wider: whether an output may be of a dtype that holds more than the reference's.
        """
        complete = True
        wanted = self._wanted(at)
        for base in outputs.keys() - wanted.keys():
            self.report.extra[str(InPass(base, at))] = outputs[base].numel()
        for base, target in wanted.items():
            actual = outputs.get(base)
            dtype = None if wider and _holds_more(actual, target.dtype) else target.dtype
            fits = self.check(target.kind, target.name, actual, dtype=dtype)
            complete = fits and complete
            if not fits and actual is None:
                # a wrong name, as of a tuple, says more than that it is not there
                names = Absent(tuple(outputs), tuple(wanted))
                self.report.mismatches[-1] = replace(self.report.mismatches[-1], detail=names)
        return complete

    def _wanted(self, at: Pass) -> dict[str, Target]:
        """The outputs that are expected of one pass, by the names that the candidate gives them."""
        named = {InPass.parse(name): t for (_, name), t in self.targets.items() if t.kind.is_output}
        return {name.base: target for name, target in named.items() if name.at == at}

    def input_gradients(self, leaves: Mapping[str, Tensor], at: Pass, scale: float = 1.0) -> None:
        """Compares the gradients of one pass's inputs, of a loss that was scaled."""
        for name, leaf in leaves.items():
            if leaf.requires_grad:
                self.check(Kind.INPUT_GRAD, str(InPass(name, at)), unscaled(leaf.grad, scale))

    def of_parameters(self, kind: Kind, given: Mapping[str, Tensor | None], step: int = 0) -> None:
        """Compares gradients of parameters, or an optimizer's state, in a step. What is expected
        and not given (of a parameter that the candidate froze, or made a buffer of) is a mismatch.
        """
        for target in self.of_step(kind, step):
            self.check(kind, target.name, given.get(InPass.parse(target.name).base))

    def of_step(self, kind: Kind, step: int) -> list[Target]:
        """What is expected of this kind in a step."""
        return self._steps.get((kind, step), [])

    def check(
        self, kind: Kind, name: str, actual: Tensor | None, *, dtype: torch.dtype | None = None
    ) -> bool:
        """Compares one tensor; False where its shape is wrong, so that the run can't go on.

        Args:
            dtype: the dtype that it must have, or None where any will do.
        """
        target = self.targets.get((kind, name))
        if target is None:
            return True
        if not placement.holds(target.entry, case=self.case, rank=self.rank):
            self._not_here(target, actual)
            return True
        if actual is None and target.unused:  # it has none either
            self.report.compared[kind, name] = summed(target.entry)
            return True
        if (other := placed_otherwise(target, actual, self.case, self.rank)) is not None:
            return self._apart(target, other, other.placement)
        # the placement first: sums of partials are taken before anything is compared
        entry, actual = self._settle(target, actual)
        self.report.compared[kind, name] = entry
        if kind is Kind.PARAM_GRAD and self.problem.most:
            self.gradients[name] = entry, actual
        if actual is not None and (form := forms.odd(actual)) is not None:
            return self._apart(target, WrongForm(form, forms.dtype_name(target.dtype)), form)
        self.keep(target, actual)
        expected, spread, exact = self._slices(target, entry)
        about: dict[str, Any] = {"name": name, "kind": kind, "rank": self.rank, "dtype": dtype}
        found = compare.compare(actual, expected, spread, exact, **about)
        if (kind, name) in self.decided:
            pass
        elif found.mismatch is None:
            self.report.usage = max(self.report.usage, found.usage)
        else:
            self._suspect(found.mismatch, target, entry, actual)
        self._hold_other_rules_against(target, entry, actual, expected)
        return actual is not None and actual.shape == expected.shape

    def part(self, name: str, full: Tensor, gradient: Tensor) -> Tensor | None:
        """What this rank has of a full tensor, if that is placed as the gradient of a parameter is;
        None where nothing is expected of that."""
        target = self.targets.get((Kind.PARAM_GRAD, name))
        if target is None or not placement.holds(target.entry, case=self.case, rank=self.rank):
            return None
        where = self.case, self.rank
        dtensor = is_dtensor(gradient)
        entry = _of_dtensor(target, gradient, *where)[0] if dtensor else self._live(target)
        return take(full, summed(entry), case=self.case, rank=self.rank)

    def _apart(self, target: Target, detail: WrongForm | PlacedOtherwise, has: str) -> bool:
        """A tensor of a form or a placement with which nothing in it can be compared."""
        self.report.digests[target.kind, target.name] = has
        if self.work.rules:
            self.report.alarms |= set(other_rules.ON_TENSORS)
        self.report.mismatches.append(Mismatch(target.name, target.kind, self.rank, detail=detail))
        return False

    def _slices(self, target: Target, entry: Entry) -> tuple[Tensor, Spread, Tensor | None]:
        """This rank's part of the expected value, of its σ, and of integers the very ones."""
        tensors = (target.value, target.spread.sigma, target.exact)
        value, sigma, exact = (
            None if t is None else take(t, entry, case=self.case, rank=self.rank) for t in tensors
        )
        assert value is not None and sigma is not None
        return value, replace(target.spread, sigma=sigma), exact

    def _not_here(self, target: Target, actual: Tensor | None) -> None:
        """Only an output that this rank should not have is evidence: gradients are of its own."""
        if actual is not None and target.kind.is_output:
            detail = elsewhere(target.entry, self.case, self.rank)
            self.report.mismatches += [Mismatch(target.name, target.kind, self.rank, detail=detail)]

    def keep(self, target: Target, actual: Tensor | None) -> None:
        """Notes what the tensor was."""
        self.report.digests[target.kind, target.name] = fingerprint(actual)
        if self.work.dump and actual is not None:
            self.kept[str(Key(target.kind, target.name))] = _copy(actual)

    def _suspect(
        self, found: Mismatch, target: Target, entry: Entry, actual: Tensor | None
    ) -> None:
        self.report.mismatches.append(found)
        if actual is not None and found.error is not None:
            self.report.suspects[target.kind, target.name] = entry
            self.suspects[str(Key(target.kind, target.name))] = _copy(actual)

    def _hold_other_rules_against(
        self, target: Target, entry: Entry, actual: Tensor | None, expected: Tensor
    ) -> None:
        if self.work.rules and target.own is not None:
            own = take(target.own, entry, case=self.case, rank=self.rank)
            limit = other_rules.twice_own_error(target.own, target.value)
            self.report.alarms |= other_rules.alarms(actual, expected, own, twice_own=limit)

    def _settle(self, target: Target, actual: Tensor | None) -> tuple[Entry, Tensor | None]:
        """The placement to compare under, and the local tensor (sums of partials are taken).

        A DTensor is compared under its own placements, whatever the layout says: whether those are
        the right ones is another question, which loading has asked. So is a parameter, and its
        gradient unless the layout's `grads` says otherwise: else a parameter that is replicated
        where the layout shards it would be two mismatches, one of them for its right values.
        """
        if actual is None:
            return summed(target.entry), None
        entry = target.entry
        if is_dtensor(actual):
            entry, actual = _of_dtensor(target, actual, self.case, self.rank)
        else:
            entry = self._live(target)
        actual = forms.plain(forms.dense(actual) if target.kind.is_gradient else actual)
        for axis, own in by_axis(entry).items():
            if isinstance(own, Partial) and self.case.mesh.get(axis, 1) > 1:
                actual = actual.clone()
                add_up(actual, self.mesh[axis].get_group())
        return summed(entry), actual

    def _live(self, target: Target) -> Entry:
        """The placement that the candidate's parameter has, where the tensor follows it."""
        base, params = InPass.parse(target.name).base, self.work.params
        if base == SCALE:
            return target.entry
        if target.kind is Kind.OPTIMIZER_STATE:
            of = parameter_of(base, params)
            assert of is not None, "it is named by its parameter"
            shapes = (tuple(target.value.shape), tuple(self.problem.params[of].shape))
            planned, live = follows(params[of], *shapes), self.report.entries.get(of)
            entry = None if live is None else follows(live, *shapes)
            return target.entry if entry is None or planned != target.entry else entry
        if target.kind.is_of_parameter and target.entry == params[base]:
            return self.report.entries.get(base, target.entry)
        return target.entry


def _of_dtensor(target: Target, actual: Tensor, case: Case, rank: int) -> tuple[Entry, Tensor]:
    """The live placement of a DTensor, and its local part."""
    about = target.value, target.entry, case, rank
    live = placed_whole(actual, *about)
    if _adds_up_itself(actual, live):
        actual = _whole_of_terms(actual)
        live = placed_whole(actual, *about)
    # on an axis of one rank every placement is the whole
    alone = {axis for axis in live if along(axis, case, rank)[0] == 1}
    return {a: Replicate() if a in alone else own for a, own in live.items()}, local(actual)


def _by_step(targets: Iterable[Target]) -> dict[tuple[Kind, int], list[Target]]:
    """Those of each kind and step, in order."""
    found: dict[tuple[Kind, int], list[Target]] = {}
    for target in targets:
        found.setdefault((target.kind, InPass.parse(target.name).at.step), []).append(target)
    return found


def _adds_up_itself(tensor: Any, live: Mapping[Any, Placement]) -> bool:
    """Whether terms of a DTensor are its own to add up: those of a mean, a maximum or a masked
    lookup, and those over a group that the case's mesh has none for."""
    own = [p for p in tensor.placements if p.is_partial()]
    apart = any(isinstance(axis, Axis) and p == Partial() for axis, p in live.items())
    return apart or any(not p.is_partial("sum") or hasattr(p, "mask_buffer") for p in own)


def _whole_of_terms(tensor: Any) -> Any:
    """A DTensor whose terms are added up."""
    from torch.distributed.tensor import Replicate as Whole

    placements = [Whole() if own.is_partial() else own for own in tensor.placements]
    return tensor.redistribute(placements=placements)


def _copy(tensor: Tensor) -> Tensor:
    """As it is now: clipping, or a later step, may write into it."""
    return tensor.detach().cpu().clone()


def _holds_more(actual: Tensor | None, dtype: torch.dtype | None) -> bool:
    """Whether every number of the dtype is one of the tensor's."""
    if actual is None or dtype is None:
        return False
    floats = actual.is_floating_point() and dtype.is_floating_point
    return floats and torch.promote_types(actual.dtype, dtype) == actual.dtype
