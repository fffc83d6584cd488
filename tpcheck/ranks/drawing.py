"""The random masks that a candidate draws on a rank: each is noted, and the rank's part of the
reference's stands in its place, so that all the rest of the case can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tpcheck.comms import callsite
from tpcheck.comms.trace import Recorder
from tpcheck.evidence.masks import (
    MaskOfOtherShape,
    MaskRedrawn,
    MaskRepeated,
    MasksCounted,
    OtherRate,
)
from tpcheck.kernels.stopped import NotModelled
from tpcheck.placement import Placement, Shard, take
from tpcheck.protocol.messages import DrawnMask, RankReport, Work
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.digest import fingerprint
from tpcheck.tensors.live import is_dtensor, local
from tpcheck.tensors.masks import (
    TELLING,
    Chance,
    Drawing,
    Mask,
    bits_of,
    concerns,
    drops_inside,
    in_backward,
    on_paper,
)
from tpcheck.tensors.names import InPass, Pass, generic
from tpcheck.tensors.readings import Reading, readings
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind


class Masks:
    """What a rank draws in its passes.

    Args:
        report: filled as it goes.
    """

    def __init__(
        self, work: Work, problem: Problem, recorder: Recorder, report: RankReport
    ) -> None:
        self.work, self.case, self.problem = work, work.case, problem
        self.recorder, self.report, self.rank = recorder, report, report.rank
        self._drawing = Drawing(self._instead)
        self._at: Pass | None = None
        self._count = self._next = 0  # drawn; the number of the next one in the reference
        self._in_place: list[Tensor | None] = []  # by number, in this pass
        self._numbers: dict[Any, int] = {}  # the generator's state, a shape → which mask it gave
        self._left_to_torch = False  # whether the next mask is part of a DTensor on the CPU
        self._seen: dict[str, str] = {}  # the bits of a mask that tells → its name
        self._shapes: dict[Any, list[Reading]] = {}  # the whole's, its own → how it may be read
        if problem.masks:
            recorder.masks = self

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator that may draw a mask."""
        if self._at is None or on_paper():
            return func(*args, **kwargs)
        if drops_inside(func, args, kwargs):
            raise NotModelled(
                f"the random mask that aten.{func.__name__} draws inside its kernel; run attention "
                "under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
            )
        try:
            return self._drawing(func, args, kwargs)
        finally:
            if concerns(func):
                self._left_to_torch = False

    def unfolds(self, func: Any, args: tuple[Any, ...]) -> None:
        """A DTensor's operator is about to be run on its local part. Its own masks are torch's to
        coordinate, which it does on a GPU and leaves on the CPU."""
        if self._at is not None and concerns(func):
            self._left_to_torch = not any(local(a).is_cuda for a in args if is_dtensor(a))

    def begin(self, at: Pass) -> None:
        """A pass's forward is next."""
        if self.problem.masks:
            self._at, self._count, self._next, self._in_place = at, 0, 0, []
            self._numbers.clear()
            self._left_to_torch = False

    def end(self) -> None:
        """Its backward is over."""
        if self._at is None:
            return
        due = self.problem.masks.get(self._at.suffix, [])
        if self._next > len(due) or not all(map(self._may_lack, due[self._next :])):
            number = max(0, min(self._next, len(due) - 1))
            self._note(number, MasksCounted(self._count, len(due)))
        self._at = None

    def _instead(self, outcome: Tensor, chance: Chance, state: bytes) -> Tensor | None:
        where, module = callsite.line(), self.recorder.origin.module()
        if in_backward():
            known = self._numbers.get((state, outcome.shape))
            if known is None:
                self._note(0, MaskRedrawn(where, module))
                return None
            return self._in_place[known]
        assert self._at is not None, "asked for within a pass"
        due = self.problem.masks.get(self._at.suffix, [])
        number = self._number(due, tuple(outcome.shape))
        self._count, self._next = self._count + 1, number + 1
        self._numbers[state, outcome.shape] = len(self._in_place)
        own = None  # of one too many: `end` says so
        if number < len(due):
            own = self._part(number, due[number], outcome, chance, (where, module))
        self._in_place.append(own)
        return own

    def _number(self, due: Sequence[Mask], shape: tuple[int, ...]) -> int:
        """Which of the reference's masks the next one is: those of which this rank may have nothing
        are not drawn at all by torch's dropout."""
        for number in range(self._next, len(due)):
            if self._fitting(tuple(due[number].true.shape), shape):
                return number
            if not self._may_lack(due[number]):
                break
        return self._next

    def _may_lack(self, mask: Mask) -> bool:
        """Whether this rank has nothing of a mask, where that is split along one of its dims."""
        if self.case.tp == 1:
            return not mask.true.numel()
        entries = ({"tp": Shard(dim)} for dim in range(mask.true.ndim))
        parts = (take(mask.true, entry, case=self.case, rank=self.rank) for entry in entries)
        return any(not part.numel() for part in parts)

    def _part(
        self, number: int, mask: Mask, outcome: Tensor, chance: Chance, at: tuple[str, str]
    ) -> Tensor | None:
        """This rank's part of the reference's mask, as the candidate draws it."""
        full, own = tuple(mask.true.shape), tuple(outcome.shape)
        reading = self._reading(full, own, at)
        if reading is None:
            self._note(number, MaskOfOtherShape(own, full, *at))
            return None
        true = mask.drawn_as(chance)
        if true is None:
            self._note(number, OtherRate(chance.true, mask.chance.true, *at))
            return None
        if not self._left_to_torch:
            self._report(number, reading.entry, outcome, chance, at)
        part = reading.part(true, case=self.case, rank=self.rank).reshape(own)
        self._tell_apart(true, part, at)
        return part

    def _tell_apart(self, true: Tensor, part: Tensor, at: tuple[str, str]) -> None:
        """Notes the other readings that would have given another mask here."""
        assert self._at is not None, "asked for within a pass"
        site = _site(at, true.ndim)
        apart = self.report.apart.setdefault(site, {})
        for other in self.report.readings[site]:
            if other in apart:
                continue
            theirs = other.part(true, case=self.case, rank=self.rank).reshape(part.shape)
            if not torch.equal(theirs, part):
                apart[other] = self._at.step

    def _reading(
        self, full: tuple[int, ...], own: tuple[int, ...], at: tuple[str, str]
    ) -> Reading | None:
        """How a mask that is drawn there is read: as the driver says, or else as is likely."""
        site, fitting = _site(at, len(full)), self._fitting(full, own)
        known = self.report.readings.get(site)
        of_all = fitting if known is None else [one for one in known if one in fitting]
        self.report.readings[site] = of_all
        told = self.work.readings.get(site)
        return told if told in fitting else next(iter(of_all or fitting), None)

    def _fitting(self, full: tuple[int, ...], own: tuple[int, ...]) -> list[Reading]:
        known = self._shapes.get((full, own))
        if known is None:
            known = list(readings(full, own, case=self.case, rank=self.rank))
            self._shapes[full, own] = known
        return known

    def _report(
        self,
        number: int,
        entry: Mapping[str, Placement],
        outcome: Tensor,
        chance: Chance,
        at: tuple[str, str],
    ) -> None:
        name, bits = self._name(number), fingerprint(outcome)
        tells = outcome.numel() * bits_of(chance.true)
        if tells >= TELLING and (earlier := self._seen.setdefault(bits, name)) != name:
            self._note(number, MaskRepeated(earlier, *at))
        self.report.drawn[name] = DrawnMask(entry, bits, tells, *at)

    def _name(self, number: int) -> str:
        assert self._at is not None, "asked for within a pass"
        return str(InPass(f"mask{number}", self._at))

    def _note(self, number: int, detail: Any) -> None:
        self.report.mismatches.append(
            Mismatch(self._name(number), Kind.MASK, self.rank, detail=detail)
        )


def _site(at: tuple[str, str], ndim: int) -> str:
    """What is read in one way: the masks of so many dims that a line draws in modules alike."""
    where, module = at
    return f"{where} {generic(module)} {ndim}"
