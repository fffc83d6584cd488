"""Localisation: the first module, in forward and then in backward order, at whose boundary the
candidate leaves the bounds while everything upstream agrees.

Reference and candidate run once more with the boundaries of their modules watched. How a candidate
lays out what crosses a boundary is not declared anywhere, so each placement that fits the local
shapes is tried (`fitting`); a boundary agrees where one of them holds on every rank. Two things
keep a correct module from being blamed:

* boundaries at which the candidate at tp=1 does not hold what the reference holds (a fused
  projection, a folded scale) say nothing, and are left out;
* what differs inside a module counts only where that module's own result differs, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tpcheck.causes.where import Subject
from tpcheck.diagnosis.facts import Dumps, Local, values
from tpcheck.diagnosis.fitting import Fit, Locals, cuts, fit
from tpcheck.diagnosis.sums import Due, are_one, is_taken
from tpcheck.event import Event
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Replicate
from tpcheck.tensors.boundaries import Border
from tpcheck.tensors.names import Key, Pass, Shelf
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import End, Kind, Phase


@dataclass(frozen=True)
class Place:
    """Where it starts.

    Args:
        module: qualified name; empty for the outermost module.
        phase: forward or backward.
        border: where it was seen; None where only a parameter's gradient is wrong.
        after: the module just before whose result is a sum that is still to be taken, if any.
        fed: the boundary just before, where the ranks hold terms of a sum there.
    """

    module: str
    phase: Phase
    border: Border | None = None
    after: str | None = None
    fed: Border | None = None


class Borders:
    """The tensors at module boundaries of one case, on the ranks of one dp coordinate.

    Args:
        posed: the case with its watched reference.
        dumps: what the ranks held of them.
        d: the dp coordinate.
        comparable: those that may be compared, or None for all.
    """

    def __init__(
        self,
        posed: Posed,
        dumps: Dumps,
        d: int = 0,
        comparable: set[Border] | None = None,
    ) -> None:
        self.case, self.posed = posed.case, posed
        world = range(self.case.world_size)
        self.ranks = [r for r in world if self.case.dp_coordinate(r) == d]
        known = {Border.of(target.name): target for target in posed.problems[d].borders}
        self.targets = {
            border: target
            for border, target in known.items()
            if (comparable is None or border in comparable)
            and all(_key(border) in dumps.get(r, {}) for r in self.ranks)
        }
        self.dumps = dumps
        self._fits: dict[Border, Fit | None] = {}

    def locals(self, border: Border) -> Locals:
        return {r: self.dumps[r][_key(border)] for r in self.ranks}

    def of(self, phase: Phase) -> list[Border]:
        """The boundaries of one phase, in the order in which the reference crosses them."""
        return [border for border in self.targets if border.phase == phase]

    def fit(self, border: Border) -> Fit | None:
        """How the candidate holds this tensor; None where it holds another one."""
        if border not in self._fits:
            target, held = self.targets[border], self.locals(border)
            self._fits[border] = fit(target, held, self.posed)
        return self._fits[border]

    def agreeing(self) -> set[Border]:
        """All boundaries that agree."""
        return {border for border in self.targets if self.fit(border) is not None}

    def differs(self, border: Border) -> bool:
        """Whether the ranks hold something else here; so they do where they hold terms of a sum
        and its like in other layers is complete."""
        held = self.fit(border)
        if held is None or not held.partial:
            return held is None
        mates = [f for b in self._like(border) if (f := self.fit(b)) is not None]
        return any(not f.partial for f in mates)

    def _like(self, border: Border) -> list[Border]:
        """The same boundary of the other layers."""
        role = _role(border)
        return [b for b in self.of(border.phase) if _role(b) == role and b != border]

    def first(self, phase: Phase) -> Place | None:
        """Where this phase goes wrong first."""
        before: Border | None = None
        for border in self.of(phase):
            if self.differs(border) and self._carries(border):
                partial = before is not None and self._is_partial(before)
                return _place(border, before if partial else None)
            before = border
        return None

    def _is_partial(self, border: Border) -> bool:
        held = self.fit(border)
        return held is not None and held.partial

    def first_backward(self, place: Place | None, parameters: list[str]) -> Place | None:
        """Where backward goes wrong first: at `place`, or at one of the parameters whose gradients
        are wrong, each of which belongs between its module's `out` boundary and its `in` one."""
        order = self.of(Phase.BACKWARD)
        end = order.index(place.border) if place and place.border else len(order)
        starts = {b.module: i for i, b in reversed(list(enumerate(order))) if b.side is End.OUT}
        owners = [name.rpartition(".")[0] for name in parameters]
        if place is not None:  # inside a module without boundaries of its own the order is unknown
            owners = [owner for owner in owners if owner in starts]
        if not owners:
            return place
        earliest = min(owners, key=lambda owner: _start(owner, starts))
        start = _start(earliest, starts)
        if place is not None and start >= end:
            return place
        if start < len(order) and self._is_left(order[start]):
            return _place(order[start])
        if place is not None and start < len(order) and self._is_partial(order[start]):
            # what comes in is a sum that nobody takes, since what goes on from here is wrong
            return self._start_of_sum(order, start)
        return Place(earliest, Phase.BACKWARD)

    def _start_of_sum(self, order: list[Border], index: int) -> Place:
        """Where the gradient that is a sum to be taken at `index` has become one. Terms that are
        the same on all ranks, just after some that differ, are not those: they were added up, and
        the sum was divided."""
        while index and self._is_partial(order[index - 1]):
            here, before = (self.locals(b).values() for b in (order[index], order[index - 1]))
            if are_one(here) and not are_one(before):
                return _place(order[index], order[index - 1])
            index -= 1
        return _place(order[index])

    def _is_left(self, border: Border) -> bool:
        """Whether the ranks hold terms of a sum here, and in no other layer: nobody took it."""
        mates = self._like(border)
        return self._is_partial(border) and bool(mates) and not any(map(self._is_partial, mates))

    @property
    def ends_inside(self) -> bool:
        """Whether no input has a gradient: what is left of a sum shows at no input."""
        kinds = {target.kind for problem in self.posed.problems for target in problem.targets}
        return Kind.INPUT_GRAD not in kinds

    def unsummed(self) -> Place | None:
        """Where the gradient of an input turns into terms of a sum that nobody takes after."""
        order = self.of(Phase.BACKWARD)
        if not order or not self._is_partial(order[-1]):
            return None
        return self._start_of_sum(order, len(order) - 1)

    def _carries(self, border: Border) -> bool:
        """Whether the nearest module around this boundary that can be compared is wrong, too: a
        difference that does not reach its result is another way to the same."""
        side = End.OUT if border.phase is Phase.FORWARD else End.IN
        around = border.parent
        while around is not None:
            ends = [b for b in self.of(border.phase) if (b.module, b.side) == (around, side)]
            if ends:
                return any(self.differs(b) for b in ends)
            around = around.rpartition(".")[0] if around else None
        return True

    def telling(self, place: Place, trace: Sequence[Sequence[Event]] = ()) -> list[Local]:
        """What hypotheses are tested on where a phase goes wrong: the terms of a sum just before,
        too, unless that was taken. Terms are always such that their sum is right.

        Args:
            trace: the ranks' collectives.
        """
        found = [self._with_around(b) for b in (place.border, place.fed) if b is not None]
        known = [local for local in found if local is not None]
        if len(known) < 2 or place.fed is None:
            return known
        by = {place.module, place.fed.module}
        due = [b for b in self.of(place.phase) if b.parent == place.fed.parent]
        sizes = [self.targets[b].value.numel() for b in due if self._is_partial(b)]
        sums = Due(place.phase, self.targets[place.fed].value.numel(), sizes, by)
        taken = is_taken(*known) or sums.are_taken(self.case, trace)
        return known[:1] if taken else known

    def _with_around(self, border: Border) -> Local | None:
        """With what the module around returns, where that is one tensor."""
        found, outer = self.local(border), border.parent
        if found is None or border.phase is not Phase.FORWARD or border.side is not End.OUT:
            return found
        ends = [b for b in self.of(Phase.FORWARD) if (b.module, b.side) == (outer, End.OUT)]
        return replace(found, around=self.local(ends[0])) if len(ends) == 1 else found

    def local(self, border: Border) -> Local | None:
        """The tensor at a boundary as the hypotheses take it, laid out as its shapes say."""
        target, held = self.targets[border], self.locals(border)
        how = next(cuts(target, held, self.posed), None)
        if how is None:
            return None
        kind = Kind.OUTPUT if border.phase is Phase.FORWARD else Kind.INPUT_GRAD
        return Local(
            target=replace(target, kind=kind, entry=Replicate()),
            case=self.case,
            ranks=list(self.ranks),
            actual={r: t.double() for r, t in held.items()},
            expected={r: how.cut(target.value, r) for r in self.ranks},
            sigma={r: how.cut(target.spread.sigma, r) for r in self.ranks},
            cut=how.cut,
            inside=Subject(kind, border.module, border.side),
        )


def _place(border: Border, fed: Border | None = None) -> Place:
    """Where it goes wrong at a boundary; `fed`: the one before, if that has terms of a sum."""
    module = _maker(border)
    after = fed.module if fed is not None and fed.parent == module else None
    return Place(module, border.phase, border, after, fed)


def _key(border: Border) -> Key:
    return Key(Shelf.BORDER, border.key)


_NUMBER = re.compile(r"(?<![^.])((layer|block|stage)_?)?\d+(?![^.])")


def _role(border: Border) -> tuple[str, ...]:
    """What it has in common with the same boundary of other layers, and of other calls: `layers.1`
    and `layers.2` are two, or `block1` and `block2`; `fc1` and `fc2` are not."""
    return border.phase, _NUMBER.sub("*", border.module), border.side, border.slot


def _maker(border: Border) -> str:
    """The module whose code makes the tensor at `border` out of those before it."""
    inside = border.side is (End.OUT if border.phase is Phase.FORWARD else End.IN)
    return border.module if inside else border.parent or ""


def _start(module: str, starts: Mapping[str, int]) -> int:
    """When a module, or the nearest one around it that is known, gets its gradient."""
    while module not in starts and module:
        module = module.rpartition(".")[0]
    return starts.get(module, 0)


def watched_pass(result: CaseResult) -> Pass | None:
    """The pass in which a case goes wrong first; None where no value is wrong, or the first comes
    after a right pass: of a step, of which later passes only show the consequences."""
    wrong = values(result)
    if wrong and wrong[0].kind in (Kind.GRAD_NORM, Kind.OPTIMIZER_STATE, Kind.PARAM):
        return None
    of_step = (m for m in wrong if m.name.at.step == wrong[0].name.at.step)
    return next((m.name.at for m in of_step if m.kind.is_output or m.kind.is_gradient), None)


def locate(result: CaseResult, borders: Borders) -> Place | None:
    """Where the failure `result`, seen again on these boundaries, starts."""
    wrong = values(result)
    if not wrong or not borders.targets:
        return None
    # what is wrong inside may yet be too small for the bounds of the outputs
    place = borders.first(Phase.FORWARD)
    if place is not None or wrong[0].kind.is_output:
        return place
    place = borders.first(Phase.BACKWARD)
    if place is None and (any(m.kind is Kind.INPUT_GRAD for m in wrong) or borders.ends_inside):
        place = borders.unsummed()
    return borders.first_backward(place, [m.tensor for m in wrong if _of_parameter(m)])


def _of_parameter(mismatch: Mismatch) -> bool:
    """Whether a parameter's gradient is wrong, or differs between replicas."""
    return mismatch.of is Kind.PARAM_GRAD
