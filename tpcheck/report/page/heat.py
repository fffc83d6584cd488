"""A map of the error over a tensor as rectangles, with the borders of the shards."""

from __future__ import annotations

import math
from typing import Any

from tpcheck.errors import counted

#: Pixels of a map's longer side, at most, and of one cell. A phone is 360 wide, and scrolls; a cell
#: below 6 can't be told from its neighbour.
WIDEST, LEAST, MOST = 512, 6, 40

#: Cells of a panel up to which each says its error when it is pointed at. Of more, a page of a few
#: failures would be larger than an issue tracker takes.
TOLD = 256

#: Room for the ranks' names beside and above a map.
MARGIN = 64

#: error / bound from which a cell has the next colour; below the first it agrees.
LEVELS = (0.1, 1.0, 3.0, 30.0, 1e3, 1e6, 1e9)


def drawn(one: dict[str, Any]) -> dict[str, Any]:
    """What the template draws of one map (docs/reports.md)."""
    shape = one["shape"]
    rows, columns = (_size(shape, one[name]) for name in ("row_dim", "column_dim"))
    return {
        "tensor": one["tensor"],
        "kind": one["kind"],
        "shape": shape,
        "across": _dim(shape, one["column_dim"]),
        "down": _dim(shape, one["row_dim"]),
        "others": _others(one),
        "panels": [_panel(panel, one["pieces"], rows, columns) for panel in one["panels"]],
    }


def _size(shape: list[int], dim: int | None) -> int:
    return shape[dim] if dim is not None and 0 <= dim < len(shape) else 1


def _dim(shape: list[int], dim: int | None) -> str:
    return "" if dim is None or _size(shape, dim) == 1 else f"dim {dim}, of {_size(shape, dim)}"


def _others(one: dict[str, Any]) -> str:
    drawn = (one["row_dim"], one["column_dim"])
    left = [f"dim {dim}" for dim, n in enumerate(one["shape"]) if dim not in drawn and n > 1]
    return ", ".join(left)


def _panel(
    panel: dict[str, Any], pieces: list[dict[str, Any]], rows: int, columns: int
) -> dict[str, Any]:
    cells = panel["cells"]
    high, wide = len(cells), max((len(line) for line in cells), default=0)
    side = min(MOST, max(LEAST, WIDEST // max(high, wide, 1)))
    own = [piece for piece in pieces if set(piece["ranks"]) & set(panel["ranks"])]
    boxes = [
        _cell(value, i, j, side, (rows, columns), (high, wide), own)
        for i, line in enumerate(cells)
        for j, value in enumerate(line)
    ]
    scale = (side * high / max(rows, 1), side * wide / max(columns, 1))
    wrong = sum(box["level"] not in ("c0", "c1", "none") for box in boxes)
    return {
        "ranks": panel["ranks"],
        "width": max(side * wide + 2 * MARGIN, 220),
        "height": side * high + MARGIN,
        "side": side,
        "cells": boxes if len(boxes) <= TOLD else [],
        "paths": _paths(boxes, side) if len(boxes) > TOLD else [],
        "borders": [border for piece in own for border in _borders(piece, panel["ranks"], scale)],
        "said": f"{wrong} of {counted(len(boxes), 'cell')} beyond the bound",
    }


def _paths(boxes: list[dict[str, Any]], side: int) -> list[dict[str, Any]]:
    """All cells of one colour as one path: a tenth of the characters of as many rectangles."""
    found: dict[str, list[str]] = {}
    for box in boxes:
        found.setdefault(box["level"], []).append(f"M{box['x']} {box['y']}h{side}v{side}h-{side}z")
    return [{"level": level, "d": "".join(each)} for level, each in found.items()]


def _cell(
    value: Any,
    i: int,
    j: int,
    side: int,
    sizes: tuple[int, int],
    counts: tuple[int, int],
    pieces: list[dict[str, Any]],
) -> dict[str, Any]:
    (first, last), (left, right) = (
        _covered(i, sizes[0], counts[0]),
        _covered(j, sizes[1], counts[1]),
    )
    holders = sorted(
        {
            rank
            for piece in pieces
            if _meets(piece["rows"], first, last) and _meets(piece["columns"], left, right)
            for rank in piece["ranks"]
        }
    )
    said = "not judged" if value is None else f"error {_short(value)} × its bound"
    where = f"row {_span(first, last)}, column {_span(left, right)}"
    return {
        "x": MARGIN + j * side,
        "y": MARGIN // 2 + i * side,
        "level": level(value),
        "said": f"{where}: {said} (rank {', '.join(map(str, holders))})",
    }


def level(value: Any) -> str:
    """The colour of a cell."""
    if value is None:
        return "none"
    number = float(value)
    return "nan" if math.isnan(number) else f"c{sum(number > limit for limit in LEVELS)}"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _covered(cell: int, size: int, count: int) -> tuple[int, int]:
    """The first and the last element of a cell."""
    first, after = -(-cell * size // count), -(-(cell + 1) * size // count)
    return first, max(first, after - 1)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _meets(runs: list[list[int]], first: int, last: int) -> bool:
    return any(run[0] <= last and first < run[1] for run in runs if len(run) == 2)


def _borders(
    piece: dict[str, Any], shown: list[int], scale: tuple[float, float]
) -> list[dict[str, Any]]:
    """The frames of one piece, the first with the names of its ranks."""
    ranks = [rank for rank in piece["ranks"] if rank in shown]
    found = []
    runs = ((row, column) for row in piece["rows"] for column in piece["columns"])
    for row, column in runs:
        if len(row) == len(column) == 2:
            found.append(
                {
                    "x": round(MARGIN + column[0] * scale[1], 1),
                    "y": round(MARGIN / 2 + row[0] * scale[0], 1),
                    "width": round((column[1] - column[0]) * scale[1], 1),
                    "height": round((row[1] - row[0]) * scale[0], 1),
                    "name": ",".join(map(str, ranks)),
                    "beside": row[1] - row[0] > 0 and column[0] == 0,
                }
            )
    return found
