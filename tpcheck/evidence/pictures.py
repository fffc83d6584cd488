"""What a page draws of a counterexample: data of bounded size, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tpcheck.event import Event
from tpcheck.vocabulary import End, Kind, Phase

Cells = tuple[tuple[float | None, ...], ...]
Runs = tuple[tuple[int, int], ...]

#: By which `Pictures.code` has the check's own loader.
LOADER = "load()"


class Fate(StrEnum):
    """What became of a tensor at a module's boundary."""

    AGREES = "agrees"
    SUM = "sum"  # the ranks hold terms of it, and their sum agrees
    DIFFERS = "differs"


@dataclass(frozen=True)
class Panel:
    """One full tensor as these ranks hold it together, or each of them alike.

    Args:
        cells: the largest error / bound in each [row][column]; `nan` where a NaN is, infinite where
            what never rounds is wrong; None where nothing is judged, or no rank of them has it.
    """

    ranks: tuple[int, ...]
    cells: Cells


@dataclass(frozen=True)
class Piece:
    """Where the part of some ranks is in the full tensor: runs [start, stop) of rows and columns,
    in elements."""

    ranks: tuple[int, ...]
    rows: Runs
    columns: Runs


@dataclass(frozen=True)
class ErrorMap:
    """The error over one tensor, made smaller; of dims other than these two the largest.

    Args:
        shape: of the full tensor.
        row_dim, column_dim: the dims that run down and across, where there are such.
    """

    tensor: str
    kind: Kind
    shape: tuple[int, ...]
    row_dim: int | None
    column_dim: int | None
    pieces: tuple[Piece, ...]
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Boundary:
    """A tensor at a module's boundary, as in `tensors.boundaries.Border`.

    Args:
        held: how the ranks hold it (`Shard(1)`), where that is known.
        error: the largest error / bound, where it differs.
    """

    phase: Phase
    module: str
    call: int
    side: End
    slot: str
    fate: Fate
    held: str | None = None
    error: float | None = None


@dataclass(frozen=True)
class Boundaries:
    """In the order in which they are crossed, forward and then backward.

    Args:
        first: the index of the one where it is seen first, where it is among them.
        left_out: how many more there are.
    """

    rows: tuple[Boundary, ...]
    first: int | None = None
    left_out: int = 0


@dataclass(frozen=True)
class Collectives:
    """What each rank entered, in its order.

    Args:
        events: each once.
        ranks: rank → indices into them; a rank that failed is not among them.
        left_out: how many more there are of all ranks.
    """

    events: tuple[Event, ...]
    ranks: Mapping[int, tuple[int, ...]]
    left_out: int = 0


@dataclass(frozen=True)
class Source:
    """A part of one of the user's files.

    Args:
        file: its name, without the folder.
        first: the number of the first line.
        marks: the numbers of the lines that say something of the failure.
        named: those of them that the diagnosis names, or in which a rank raised; at the others
            ranks entered a collective.
    """

    file: str
    first: int
    lines: tuple[str, ...]
    marks: tuple[int, ...] = ()
    named: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pictures:
    """All of it.

    Args:
        code: module of the candidate → its class, and where that is written; `candidate()` and
            other callables of the check → where they are.
    """

    maps: tuple[ErrorMap, ...] = ()
    boundaries: Boundaries | None = None
    collectives: Collectives | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    source: tuple[Source, ...] = ()
