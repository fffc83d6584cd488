"""What only the trace of collectives shows."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Phase


@dataclass(frozen=True)
class CollectiveLeftOut:
    """The budget has a collective in this phase, and the trace does not.

    Args:
        due, ran: the ops of the budget, and of the trace.
        lacking: those of which one should have run.
    """

    subject: Subject
    phase: Phase
    due: tuple[str, ...]
    ran: tuple[str, ...]
    lacking: tuple[str, ...]


@dataclass(frozen=True)
class SummedInPart:
    """The trace sums fewer numbers over the ranks, in this phase of a microbatch, than the tensor
    has, where the budget sums as many.

    Args:
        due, ran: numbers.
    """

    subject: Subject
    phase: Phase
    due: int
    ran: int


OfTrace = CollectiveLeftOut | SummedInPart
