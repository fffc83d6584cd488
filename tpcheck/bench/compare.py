"""Two runs of `tpcheck bench` beside each other: ratios, and which of them are more than noise."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpcheck.bench.grid import LEAST, name_of
from tpcheck.errors import InvalidArgument, listed, shown

SCHEMA_VERSION = 2

_NAMED = ("engine", "tp", "hidden", "dtype")


@dataclass(frozen=True)
class Difference:
    """One figure in two runs.

    Args:
        what: the figure.
        before, now: what was measured, repeatedly, in the same unit.
    """

    what: str
    before: Sequence[float]
    now: Sequence[float]

    @property
    def ratio(self) -> float:
        """Of the medians: above 1 it is more now."""
        return statistics.median(self.now) / statistics.median(self.before)

    @property
    def judged(self) -> str:
        """`slower`, `faster`, `within the noise` or `too few runs`.

        Two runs differ where every repetition of one is above every one of the other: of three
        each, chance alone does that once in 10, of five each once in 126.
        """
        if min(len(self.before), len(self.now)) < LEAST:
            return "too few runs"
        if min(self.now) > max(self.before):
            return "slower"
        if max(self.now) < min(self.before):
            return "faster"
        return "within the noise"

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        sides = {"before": list(self.before), "now": list(self.now)}
        return {"what": self.what, **sides, "ratio": self.ratio, "judged": self.judged}


def spread(values: Sequence[float]) -> float:
    """Half of the range over the median: 0.1 is ±10 %."""
    return (max(values) - min(values)) / 2 / statistics.median(values)


def load(path: Path) -> dict[str, list[float]]:
    """The repeated figures of a report that `tpcheck bench --json` wrote: what → milliseconds.

    Raises:
        InvalidArgument: it is no such report, or has no table.
    """
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise InvalidArgument(f"can't read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{path} is not JSON: give what tpcheck bench --json wrote") from None
    table = data.get("table") if isinstance(data, dict) else None
    if not isinstance(table, list):
        raise InvalidArgument(f"{path} is not a report of tpcheck bench: it has no table")
    if data.get("schema_version") != SCHEMA_VERSION:
        given = shown(data.get("schema_version"))
        raise InvalidArgument(
            f"{path} has schema_version {given}, not {SCHEMA_VERSION}: measure it again"
        )
    if not table:
        raise InvalidArgument(f"{path} has an empty table: measure it with --parts table")
    return figures([_cell(cell, path) for cell in table])


def _cell(cell: Any, path: Path) -> Mapping[str, Any]:
    named = isinstance(cell, dict) and all(name in cell for name in _NAMED)
    if not named or not all(_are_times(cell.get(name)) for name in ("laps", "bare")):
        raise InvalidArgument(f"{path} is not a report of tpcheck bench: a cell is {shown(cell)}")
    found: Mapping[str, Any] = cell
    return found


def _are_times(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(x, (int, float)) and 0 < x < math.inf for x in value)
    )


def figures(table: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The repeated figures of the cells of a table: those of tpcheck, and, as what the machine
    itself does, those of the bare loop."""
    found = {}
    for cell in table:
        key = name_of(*(cell[name] for name in _NAMED))
        found[key] = list(map(float, cell["laps"]))
        found[f"{key}, bare loop"] = list(map(float, cell["bare"]))
    return found


def require_common(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """What both runs have.

    Raises:
        InvalidArgument: they have nothing in common.
    """
    known = list(before)
    both = [what for what in now if what in known]
    if not both:
        raise InvalidArgument(
            f"the two runs have no cell in common; the earlier one has {listed(known)}: give its "
            "--sizes, --tp, --dtype and --engine"
        )
    return both


def compare(
    before: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]]
) -> list[Difference]:
    """What both runs have.

    Raises:
        InvalidArgument: they have nothing in common.
    """
    return [Difference(what, before[what], now[what]) for what in require_common(before, now)]
