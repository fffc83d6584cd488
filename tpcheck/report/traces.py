"""The collectives of all ranks side by side; where members of a group part for the first time, each
is marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tpcheck.event import POINT_TO_POINT, Event
from tpcheck.report.folded import COLUMNS

#: Rows that are shown: those around the first disagreement. More of them, in a training step of a
#: deep model thousands, say the same again.
ROWS = 40
#: Rows above the first disagreement: what the ranks still had in common.
ABOVE = 10
#: What a row begins with, the widest number being that of a trace of 9999 collectives.
_HEAD = 7
#: Columns of text that a rank needs. With fewer the op and its dtype are cut.
_LEAST = 21

Traces = Mapping[int, Sequence[Event]]


def side_by_side(traces: Traces) -> list[str]:
    """Each rank's collectives in its order, in columns; ranks that entered the same ones share one.
    What does not fit is counted."""
    if not any(traces.values()):
        return []
    marked = parted(traces)
    columns = _columns(traces, marked)
    fit = max(1, (COLUMNS - _HEAD) // (_LEAST + 2))
    shown, hidden = columns[:fit], columns[fit:]
    width = (COLUMNS - _HEAD) // len(shown) - 2
    length = max(len(traces[ranks[0]]) for ranks in shown)
    first = max(0, min(marked.values(), default=0) - ABOVE)
    lines = [_row("", [_ranks(ranks) for ranks in shown], width)]
    for index in range(first, min(length, first + ROWS)):
        cells = [_cell(traces[ranks[0]], index, marked.get(ranks[0])) for ranks in shown]
        lines.append(_row(str(index + 1), cells, width))
    left = length - min(length, first + ROWS)
    if first or left:
        lines.append(f"{'':{_HEAD}}{first} before these, {left} after")
    if hidden:
        others = ", ".join(_ranks(ranks) for ranks in hidden)
        lines.append(f"{'':{_HEAD}}others: {others}")
    return [line.rstrip() for line in lines]


def parted(traces: Traces) -> dict[int, int]:
    """Rank → the number of its collective, from 0, that another of its group did not enter as its
    next one; of the first group that parts. Messages between two ranks are left out: of those each
    end has its own."""
    places: dict[tuple[int, ...], dict[int, list[int]]] = {}  # group → rank → numbers
    for rank, events in traces.items():
        for number, event in enumerate(events):
            if event.op not in POINT_TO_POINT:
                places.setdefault(event.group, {}).setdefault(rank, []).append(number)
    found: list[dict[int, int]] = []
    for group, of in places.items():
        members = {rank: of.get(rank, []) for rank in group if rank in traces}
        for numbers in zip_longest(*members.values()):
            at = dict(zip(members, numbers, strict=True))
            said = {None if n is None else _what(traces[rank][n]) for rank, n in at.items()}
            if len(said) > 1:
                found.append({r: len(traces[r]) if n is None else n for r, n in at.items()})
                break
    return min(found, key=lambda at: min(at.values()), default={})


def _what(event: Event) -> str:
    return f"{event.op}({event.reduce_op}) {event.dtype}"


def _columns(traces: Traces, marked: Mapping[int, int]) -> list[list[int]]:
    """Ranks of one trace, those that part first."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, events in sorted(traces.items()):
        alike.setdefault(tuple(map(_said, events)), []).append(rank)
    return sorted(alike.values(), key=lambda ranks: (ranks[0] not in marked, ranks[0]))


def _said(event: Event) -> str:
    op = f"{event.op}({event.reduce_op})" if event.reduce_op else event.op
    peer = "" if event.peer is None else f" {'to' if event.op == 'send' else 'from'} {event.peer}"
    at = f" {event.where}" if event.where else ""
    return f"{op} {event.dtype}{list(event.shape)}{peer} {event.phase}{at}"


def _cell(events: Sequence[Event], index: int, marked: int | None) -> str:
    mark = "> " if index == marked else "  "
    if index < len(events):
        return f"{mark}{_said(events[index])}"
    return f"{mark}(none)" if index == marked else ""


def _row(number: str, cells: Sequence[str], width: int) -> str:
    fitted = (cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell in cells)
    return f"{number:>{_HEAD - 2}}  " + "  ".join(f"{cell:<{width}}" for cell in fitted)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {','.join(map(str, ranks))}"
