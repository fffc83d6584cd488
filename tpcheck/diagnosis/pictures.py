"""What a page draws of a failure, from the tensors that its examination has kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tpcheck.check import Check
from tpcheck.comms.callsite import place_of
from tpcheck.diagnosis.facts import Facts, Local, gather, values
from tpcheck.diagnosis.fitting import cuts
from tpcheck.diagnosis.localise import Borders, Place
from tpcheck.event import Event
from tpcheck.evidence.pictures import (
    Boundaries,
    Boundary,
    Cells,
    Collectives,
    ErrorMap,
    Fate,
    Panel,
    Piece,
    Runs,
)
from tpcheck.placement import summed, take
from tpcheck.tensors.boundaries import Border
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import End, Phase

#: Tensors of which there is a map. The first to go wrong says most; more would only fill reports.
MAPS = 3

#: Cells of one map along a side, at most, and where there are several panels. Fewer would blur the
#: border of one shard of 8 into the next; more, and a report of many failures outgrows a page.
SIDE, OF_PANELS = 64, 32

#: Panels of a map: copies of one tensor on several ranks. Those beyond are mostly alike.
PANELS = 4

#: Pieces of a tensor whose borders are drawn, at most: one per rank of a large world.
PIECES = 64

#: Boundaries that are listed, at most: those of some twenty blocks, around the first that differs.
ROWS = 240

#: Collectives of each rank that are listed, at most: with more, nobody reads the line.
EVENTS = 240

#: The callables of a check that a fault may be in.
CALLED = ("candidate", "load", "save", "schedule", "clip", "optimizer")

_NOBODYS = -1.0


def maps(facts: Facts) -> tuple[ErrorMap, ...]:
    """The error over the first tensors that are wrong."""
    found: dict[tuple[str, str], ErrorMap] = {}
    for mismatch in values(facts.result):
        key = (mismatch.kind, mismatch.tensor)
        if len(found) < MAPS and key not in found:
            local = gather(facts, mismatch)
            if local is not None and local.target.value.numel() > 1:
                found[key] = _map(local)
    return tuple(found.values())


def _map(local: Local) -> ErrorMap:
    full = local.target.value
    entry = summed(local.target.entry)
    index = torch.arange(full.numel()).reshape(full.shape)
    held = {r: take(index, entry, case=local.case, rank=r).flatten() for r in local.ranks}
    dims = _dims(full.shape, held)
    copies: dict[bytes, tuple[Tensor, list[int]]] = {}
    for ranks in _copies(held):
        over = torch.full((full.numel(),), _NOBODYS, dtype=torch.float64)
        for rank in ranks:
            over[held[rank]] = _ratio(local, rank).flatten()
        copies.setdefault(over.numpy().tobytes(), (over.reshape(full.shape), []))[1].extend(ranks)
    side = SIDE if len(copies) == 1 else OF_PANELS
    panels = [(_cells(over, dims, side), ranks) for over, ranks in [*copies.values()][:PANELS]]
    pieces: dict[tuple[Runs, Runs], list[int]] = {}
    for rank, own in held.items():
        at = torch.unravel_index(own, full.shape)
        rows, columns = (_runs(at, dim) for dim in dims)
        pieces.setdefault((rows, columns), []).append(rank)
    return ErrorMap(
        tensor=local.target.name,
        kind=local.kind,
        shape=tuple(full.shape),
        row_dim=dims[0],
        column_dim=dims[1],
        pieces=tuple(Piece(tuple(ranks), *runs) for runs, ranks in [*pieces.items()][:PIECES]),
        panels=tuple(Panel(tuple(ranks), cells) for cells, ranks in panels),
    )


def _ratio(local: Local, rank: int) -> Tensor:
    """Error / bound of each element of the rank's part; `_NOBODYS` where it can't be judged."""
    actual, expected, sigma = local.actual[rank], local.expected[rank], local.sigma[rank]
    error = (actual - expected).abs()
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    bound = local.target.spread.elementwise_limit(expected.numel()) * sigma
    ratio = torch.where(same, torch.zeros_like(error), error / bound)
    return torch.where(sigma.isfinite(), ratio, torch.full_like(ratio, _NOBODYS))


def _dims(shape: Sequence[int], held: Mapping[int, Tensor]) -> tuple[int | None, int | None]:
    """The two dims to draw: those along which it is sharded, then the largest."""
    cut = set()
    for own in held.values():
        at = torch.unravel_index(own, tuple(shape))
        cut |= {dim for dim, size in enumerate(shape) if len(at[dim].unique()) < size}
    order = sorted(range(len(shape)), key=lambda dim: (dim not in cut, -shape[dim], -dim))
    chosen = sorted(order[:2])
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    return None, chosen[0] if chosen else None


def _copies(held: Mapping[int, Tensor]) -> Iterator[list[int]]:
    """The ranks in groups of which each holds the tensor once, or a part of it."""
    left = dict(held)
    while left:
        taken: set[int] = set()
        group: list[int] = []
        for rank, own in list(left.items()):
            places = set(own.tolist())
            if not group or taken.isdisjoint(places):
                taken |= places
                group.append(rank)
                del left[rank]
        yield group


def _cells(ratio: Tensor, dims: tuple[int | None, int | None], side: int) -> Cells:
    """The largest of each cell, of a full tensor."""
    order = [dim for dim in dims if dim is not None]
    others = [dim for dim in range(ratio.ndim) if dim not in order]
    sizes = [1 if dim is None else ratio.shape[dim] for dim in dims]
    grid = ratio.permute(*others, *order).reshape(-1, *sizes)
    worst = torch.where(grid.isnan().any(0), torch.nan, grid.nan_to_num(0.0, math.inf).amax(0))
    rows, columns = (min(size, side) for size in sizes)
    cells: list[list[float]] = [[_NOBODYS] * columns for _ in range(rows)]
    for i, line in enumerate(worst.tolist()):
        for j, value in enumerate(line):
            row, column = i * rows // sizes[0], j * columns // sizes[1]
            cells[row][column] = _larger(cells[row][column], value)
    return tuple(tuple(None if v < 0 else float(f"{v:.3g}") for v in line) for line in cells)


def _larger(one: float, other: float) -> float:
    return one if math.isnan(one) or one > other else other


def _runs(at: Sequence[Tensor], dim: int | None) -> Runs:
    """Indices along a dim as runs [start, stop)."""
    if dim is None:
        return ((0, 1),)
    indices = at[dim].unique().tolist()
    starts = [i for i in indices if i - 1 not in set(indices)]
    stops = [i + 1 for i in indices if i + 1 not in set(indices)]
    return tuple(zip(starts, stops, strict=True))


def boundaries(borders: Borders, place: Place | None) -> Boundaries | None:
    """What became of each boundary; None where none can be compared."""
    crossed = [*borders.of(Phase.FORWARD), *borders.of(Phase.BACKWARD)]
    if not crossed:
        return None
    first = _first(crossed, place)
    start = max(0, min((first or 0) - ROWS // 2, len(crossed) - ROWS))
    shown = crossed[start : start + ROWS]
    return Boundaries(
        rows=tuple(_boundary(borders, border) for border in shown),
        first=None if first is None else first - start,
        left_out=len(crossed) - len(shown),
    )


def _first(crossed: Sequence[Border], place: Place | None) -> int | None:
    """Where the place is; of a parameter's gradient, where its module is given its own."""
    if place is None:
        return None
    if place.border is not None:
        return crossed.index(place.border)
    given = ((i, b) for i, b in enumerate(crossed) if b.phase is place.phase)
    mine = (i for i, b in given if b.module == place.module and b.side is End.OUT)
    return next(mine, None)


def _boundary(borders: Borders, border: Border) -> Boundary:
    held = borders.fit(border)
    differs = borders.differs(border)
    fate = Fate.DIFFERS if differs else Fate.SUM if held and held.partial else Fate.AGREES
    return Boundary(
        phase=border.phase,
        module=border.module,
        call=border.call,
        side=border.side,
        slot=border.slot,
        fate=fate,
        held=None if held is None else held.label,
        error=_least(borders, border) if differs else None,
    )


def _least(borders: Borders, border: Border) -> float | None:
    """The largest error / bound under the placement that fits best; None where no shape fits."""
    target, held = borders.targets[border], borders.locals(border)
    found = []
    for how in cuts(target, held, borders.posed):
        worst = 0.0
        for rank, tensor in held.items():
            error = (tensor.double() - how.cut(target.value, rank)).abs()
            bound = target.spread.elementwise_limit(error.numel()) * how.cut(
                target.spread.sigma, rank
            )
            ratio = torch.where(error == 0, torch.zeros_like(error), error / bound)
            worst = max([worst, *ratio.nan_to_num(math.inf, math.inf).flatten().tolist()])
        found.append(worst)
    return float(f"{min(found):.3g}") if found else None


def candidate_of(check: Check) -> object:
    """The user's own function: of a kernel's candidate the one that it calls."""
    return getattr(check.candidate, "fn", check.candidate)


def callables(check: Check) -> dict[str, str]:
    """Where what a check calls is written; a name has brackets, which no module's has."""
    of = {name: getattr(check, name) for name in CALLED}
    of |= {"candidate": candidate_of(check), "finalize": check.spec.finalize}
    places = {f"{name}()": place_of(function) for name, function in of.items()}
    return {name: place for name, place in places.items() if place}


def collectives(result: CaseResult) -> Collectives:
    """What each rank that ended well has entered."""
    numbers: dict[Event, int] = {}
    ranks: dict[int, tuple[int, ...]] = {}
    left_out = 0
    for rank, events in zip(result.ended, result.trace, strict=True):
        shown = events[:EVENTS]
        ranks[rank] = tuple(numbers.setdefault(event, len(numbers)) for event in shown)
        left_out += len(events) - len(shown)
    return Collectives(tuple(numbers), ranks, left_out)
