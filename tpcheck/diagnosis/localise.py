"""Localisation: the first module, in forward and then in backward order, at whose border the
candidate leaves the bounds while everything upstream agrees.

Reference and candidate run once more with the borders of their modules watched. How a candidate
lays out what crosses a border is not declared anywhere, so each placement that fits the local
shapes is tried; a border agrees where one of them holds on every rank. Two things keep a correct
module from being blamed:

* borders at which the candidate at tp=1 does not hold what the reference holds (a fused
  projection, a folded scale) say nothing, and are left out;
* what differs inside a module counts only where that module's own result differs, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.compare import compare
from tpcheck.case import Case
from tpcheck.diagnosis.evidence import ORDER, Local, order_of
from tpcheck.errors import LayoutError
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Replicate, Sharded, by_axis, take
from tpcheck.protocol.problem import Target
from tpcheck.tensors.boundaries import Border
from tpcheck.verdict import CaseResult

Locals = Mapping[int, Tensor]  # rank → what it holds
Cut = Callable[[Tensor, int], Tensor]  # (full tensor, rank) → that rank's part


@dataclass(frozen=True)
class Fit:
    """How a tensor lies on the ranks: each holds its `cut`, or a term of it (`partial`)."""

    label: str
    cut: Cut
    partial: bool = False


@dataclass(frozen=True)
class Place:
    """Where it starts.

    Args:
        module: qualified name; empty for the outermost module.
        phase: `forward` or `backward`.
        border: where it was seen; None where only a parameter's gradient is wrong.
        after: the module just before whose result is a sum that is still to be taken, if any.
    """

    module: str
    phase: str
    border: Border | None = None
    after: str | None = None


class Borders:
    """The borders of one case on the ranks of one dp coordinate.

    Args:
        posed: the case with its watched reference.
        dumps: rank → `border/key` → local tensor.
        d: the dp coordinate.
        comparable: keys of borders that may be compared, or None for all.
    """

    def __init__(
        self,
        posed: Posed,
        dumps: Mapping[int, Mapping[str, Tensor]],
        d: int = 0,
        comparable: set[str] | None = None,
    ) -> None:
        self.case, self.posed = posed.case, posed
        world = range(self.case.world_size)
        self.ranks = [r for r in world if self.case.coordinates(r).get("dp", 0) == d]
        self.targets = {
            t.name: t
            for t in posed.problems[d].borders
            if (comparable is None or t.name in comparable)
            and all(f"border/{t.name}" in dumps.get(r, {}) for r in self.ranks)
        }
        self.dumps = dumps
        self._fits: dict[str, Fit | None] = {}

    def locals(self, key: str) -> Locals:
        return {r: self.dumps[r][f"border/{key}"] for r in self.ranks}

    def of(self, phase: str) -> list[Border]:
        """The borders of one phase, in the order in which the reference crosses them."""
        return [b for b in map(Border.of, self.targets) if b.phase == phase]

    def fit(self, border: Border) -> Fit | None:
        """How the candidate holds this tensor; None where it holds another one."""
        if border.key not in self._fits:
            target, held = self.targets[border.key], self.locals(border.key)
            self._fits[border.key] = fit(target, held, self.posed)
        return self._fits[border.key]

    def agreeing(self) -> set[str]:
        """The keys of all borders that agree."""
        return {key for key in self.targets if self.fit(Border.of(key)) is not None}

    def differs(self, border: Border) -> bool:
        """Whether the ranks hold something else here; so they do where they hold terms of a sum
        and its like in other layers is whole."""
        held = self.fit(border)
        if held is None or not held.partial:
            return held is None
        mates = [f for b in self._like(border) if (f := self.fit(b)) is not None]
        return any(not f.partial for f in mates)

    def _like(self, border: Border) -> list[Border]:
        """The same border of the other layers."""
        role = re.sub(r"\d+", "*", border.key)
        same = (b for b in self.of(border.phase) if re.sub(r"\d+", "*", b.key) == role)
        return [b for b in same if b != border]

    def first(self, phase: str) -> Place | None:
        """Where this phase goes wrong first."""
        before: Border | None = None
        for border in self.of(phase):
            if self.differs(border) and self._carries(border):
                module, after = _maker(border), None
                if before is not None and before.parent == module and self._is_partial(before):
                    after = before.module
                return Place(module, phase, border, after)
            before = border
        return None

    def _is_partial(self, border: Border) -> bool:
        held = self.fit(border)
        return held is not None and held.partial

    def first_backward(self, place: Place | None, parameters: list[str]) -> Place | None:
        """Where backward goes wrong first: at `place`, or at one of the parameters whose gradients
        are wrong, each of which belongs between its module's `out` border and its `in` border."""
        order = self.of("backward")
        end = order.index(place.border) if place and place.border else len(order)
        starts = {b.module: i for i, b in reversed(list(enumerate(order))) if b.side == "out"}
        owners = [name.rpartition(".")[0] for name in parameters]
        if place is not None:  # inside a module without borders of its own the order is unknown
            owners = [owner for owner in owners if owner in starts]
        if not owners:
            return place
        earliest = min(owners, key=lambda owner: _start(owner, starts))
        start = _start(earliest, starts)
        if place is not None and start >= end:
            return place
        if start < len(order) and self._is_left(order[start]):
            return Place(_maker(order[start]), "backward", order[start])
        return Place(earliest, "backward")

    def _is_left(self, border: Border) -> bool:
        """Whether the ranks hold terms of a sum here, and in no other layer: nobody took it."""
        mates = self._like(border)
        return self._is_partial(border) and bool(mates) and not any(map(self._is_partial, mates))

    def unsummed(self) -> Place | None:
        """Where the gradient of an input turns into terms of a sum that nobody takes after."""
        order = self.of("backward")
        before = len(order)
        while before and self._is_partial(order[before - 1]):
            before -= 1
        if before == len(order):
            return None
        return Place(_maker(order[before]), "backward", order[before])

    def _carries(self, border: Border) -> bool:
        """Whether the nearest module around this border that can be compared is wrong, too: a
        difference that does not reach its result is another way to the same."""
        side = "out" if border.phase == "forward" else "in"
        around = border.parent
        while around is not None:
            ends = [b for b in self.of(border.phase) if (b.module, b.side) == (around, side)]
            if ends:
                return any(self.differs(b) for b in ends)
            around = around.rpartition(".")[0] if around else None
        return True

    def local(self, border: Border) -> Local | None:
        """The tensor at a border as the hypotheses take it, laid out as its shapes say."""
        target, held = self.targets[border.key], self.locals(border.key)
        for cut in cuts(target, held, self.posed):
            kind = "output" if border.phase == "forward" else "input_grad"
            what = f"{'of' if border.side == 'out' else 'into'} {border.module or 'the module'}"
            named = replace(target, kind=kind, name=what, entry=Replicate())
            actual = {r: t.double() for r, t in held.items()}
            expected = {r: cut.cut(target.value, r) for r in self.ranks}
            sigma = {r: cut.cut(target.spread.sigma, r) for r in self.ranks}
            return Local(named, self.case, list(self.ranks), actual, expected, sigma)
        return None


def _maker(border: Border) -> str:
    """The module whose code makes the tensor at `border` out of those before it."""
    inside = border.side == ("out" if border.phase == "forward" else "in")
    return border.module if inside else border.parent or ""


def _start(module: str, starts: Mapping[str, int]) -> int:
    """When a module, or the nearest one around it that is known, gets its gradient."""
    while module not in starts and module:
        module = module.rpartition(".")[0]
    return starts.get(module, 0)


def fit(target: Target, held: Locals, posed: Posed) -> Fit | None:
    """The first placement under which all ranks hold `target` within its bounds; sums last."""
    possible = list(cuts(target, held, posed))
    whole = next((c for c in possible if _agrees(target, held, c)), None)
    if whole is not None or len(held) < 2:
        return whole
    partial = [replace(c, label=f"partial {c.label}", partial=True) for c in possible]
    return next((c for c in partial if _agrees(target, _summed(target, held, c), c)), None)


def cuts(target: Target, held: Locals, posed: Posed) -> Iterator[Fit]:
    """The placements that the local shapes allow."""
    for label, cut in _cuts(target.value, held, posed):
        if all(cut(target.value, rank).shape == t.shape for rank, t in held.items()):
            yield Fit(label, cut)


def _cuts(full: Tensor, held: Locals, posed: Posed) -> Iterator[tuple[str, Cut]]:
    shape = full.shape
    yield "Replicate()", lambda full, rank: full
    for dim in range(len(shape)):
        sizes = {r: t.shape[dim] for r, t in held.items() if t.ndim == len(shape)}
        if len(sizes) == len(held) and sum(sizes.values()) == shape[dim]:
            yield f"Shard({dim})", _pieces(dim, sizes)
    hints = {own for entry in posed.params.values() for own in by_axis(entry).values()}
    for hint in sorted((h for h in hints if isinstance(h, Sharded)), key=repr):
        for dim in range(len(shape)):
            cut = _as_parameter(hint, dim, posed.case)
            try:
                for rank in held:
                    cut(full, rank)
            except LayoutError:
                continue
            yield repr(replace(hint, dim=dim)), cut


def _pieces(dim: int, sizes: Mapping[int, int]) -> Cut:
    """Contiguous pieces of these sizes, in the order of the ranks."""

    def cut(full: Tensor, rank: int) -> Tensor:
        start = sum(size for r, size in sizes.items() if r < rank)
        return full.narrow(dim, start, sizes[rank])

    return cut


def _as_parameter(hint: Sharded, dim: int, case: Case) -> Cut:
    """As the layout cuts some parameter, along `dim` here: activations follow their weights."""
    own = replace(hint, dim=dim)
    if isinstance(own, placement.Blocks):
        own = replace(own, parts=tuple((n, replace(p, dim=dim)) for n, p in own.parts))
    return lambda full, rank: take(full, own, case=case, rank=rank)


def _summed(target: Target, held: Locals, how: Fit) -> Locals:
    """Each rank's sum over all ranks that hold the same part."""
    index = torch.arange(target.value.numel()).reshape(target.value.shape)
    part = {r: how.cut(index, r).flatten().tolist() for r in held}
    return {
        rank: torch.stack([t.double() for r, t in held.items() if part[r] == part[rank]]).sum(0)
        for rank in held
    }


def _agrees(target: Target, held: Locals, how: Fit) -> bool:
    for rank, tensor in held.items():
        spread = replace(target.spread, sigma=how.cut(target.spread.sigma, rank))
        expected = how.cut(target.value, rank)
        found = compare(tensor, expected, spread, name=target.name, kind=target.kind, rank=rank)
        if found.mismatch is not None:
            return False
    return True


def watched_pass(found: CaseResult) -> int | str | None:
    """The pass (a microbatch, or `step`) in which `found` goes wrong first; None where no value
    is wrong."""
    values = [m for m in found.mismatches if m.kind in ORDER]
    suffix = min(values, key=order_of).tensor.partition("@")[2] if values else None
    return suffix if suffix in (None, "step") else int(suffix or 0)


def locate(found: CaseResult, borders: Borders) -> Place | None:
    """Where the failure `found`, seen again on these borders, starts."""
    values = sorted((m for m in found.mismatches if m.kind in ORDER), key=order_of)
    if not values or not borders.targets:
        return None
    # what is wrong inside may yet be too small for the bounds of the outputs
    place = borders.first("forward")
    if place is not None or values[0].kind in ("output", "loss"):
        return place
    wrong = [m.tensor for m in values if "param_grad" in (m.kind, m.detail.get("of"))]
    place = borders.first("backward")
    if place is None and any(m.kind == "input_grad" for m in values):
        place = borders.unsummed()
    return borders.first_backward(place, wrong)
