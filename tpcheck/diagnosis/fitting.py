"""How a tensor is placed on the ranks, found out from its local shapes and values: what crosses a
module's boundary declares no layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.compare import compare
from tpcheck.case import Case
from tpcheck.errors import LayoutError
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Sharded, by_axis, take
from tpcheck.protocol.problem import Target

Locals = Mapping[int, Tensor]  # rank → what it holds
Cut = Callable[[Tensor, int], Tensor]  # (full tensor, rank) → that rank's part


@dataclass(frozen=True)
class Fit:
    """How a tensor is placed: each rank holds its `cut`, or a term of it (`partial`)."""

    label: str
    cut: Cut
    partial: bool = False


def fit(target: Target, held: Locals, posed: Posed) -> Fit | None:
    """The first placement under which all ranks hold `target` within its bounds; sums last."""
    possible = list(cuts(target, held, posed))
    complete = next((c for c in possible if _agrees(target, held, c)), None)
    if complete is not None or len(held) < 2:
        return complete
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
    """As the layout shards some parameter, along `dim` here: activations follow their weights."""
    own = replace(hint, dim=dim)
    if isinstance(own, placement.Blocks) and not isinstance(own.parts, int):
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
        compared = compare(tensor, expected, spread, name=target.name, kind=target.kind, rank=rank)
        if compared.mismatch is not None:
            return False
    return True
