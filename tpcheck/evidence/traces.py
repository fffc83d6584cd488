"""Evidence of what ranks communicated and saved, though all of them finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.vocabulary import Phase


@dataclass(frozen=True)
class Ran:
    """One collective of a trace, with the module and line of the candidate."""

    collective: str
    module: str
    where: str


@dataclass(frozen=True)
class TracesDiffer:
    """Ranks ran different collectives on one group.

    Args:
        group: its ranks.
        step: the first collective in which they differ, from 1.
        first: (rank, what it ran then, or None) of both ranks.
        ranks: rank → all that it ran.
    """

    group: tuple[int, ...]
    step: int
    first: tuple[tuple[int, Ran | None], ...]
    ranks: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class MessagesLost:
    """One rank sent another more, or fewer, messages than that one received."""

    source: int
    target: int
    sent: int
    received: int


@dataclass(frozen=True)
class OverBudget:
    """More was communicated than the budget allows: elements that one rank sends.

    Args:
        ran: op → how often.
        passes: the microbatches in which it did.
    """

    phase: Phase
    ran: Mapping[str, int]
    passes: int


@dataclass(frozen=True)
class OverSaved:
    """More is saved for backward than the budget allows, in elements."""

    saved: int
    allowed: int


@dataclass(frozen=True)
class PathNotTaken:
    """A collective, a kernel or an operator that shows that a path was taken ran too rarely."""

    name: str
    phase: Phase
    ran: int
    due: int


@dataclass(frozen=True)
class WrongDtype:
    """A collective ran in another dtype than the budget's."""

    op: str
    phase: Phase
    dtype: str
    expected_dtype: str
    where: str = ""
