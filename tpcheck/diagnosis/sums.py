"""Whether a sum over the ranks was taken where they hold its terms: what is wrong after it then has
another cause than that it is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.diagnosis.facts import Local
from tpcheck.event import SUMS, Event
from tpcheck.vocabulary import Phase


def is_taken(here: Local, before: Local) -> bool:
    """Whether the ranks hold the same where they held terms before, or some of it is right: it was
    made of the whole sum. Where nothing is finite that can't be told."""
    held = list(here.actual.values())
    if not are_one(held) or not bool(held[0].isfinite().any()):
        return False
    return not are_one(before.actual.values()) or _is_right_somewhere(here)


def _is_right_somewhere(local: Local) -> bool:
    first, rank = local.actual[local.ranks[0]], local.ranks[0]
    due, limit = local.expected[rank], local.target.spread.elementwise_limit(first.numel())
    right = (first - due).abs() <= limit * local.sigma[rank]
    return bool((right & (due != 0)).any())


def are_one(held: Iterable[Tensor]) -> bool:
    """Whether ranks hold the same, NaN where another has that."""
    first, *others = (tensor.nan_to_num() for tensor in held)
    return all(torch.equal(first, other) for other in others)


@dataclass(frozen=True)
class Due:
    """The sums that a module has to take of what the ones in it give it.

    Args:
        phase: in which it takes them.
        size: elements of the one in question.
        sizes: of all.
        modules: by which of the candidate's it may be entered.
    """

    phase: Phase
    size: int
    sizes: Sequence[int]
    modules: Set[str]

    def are_taken(self, case: Case, trace: Sequence[Sequence[Event]]) -> bool:
        """Whether every rank has entered as many sums of this size as are due."""
        after = case.step and self.phase is Phase.FORWARD  # once more, after the step
        passes = case.microbatches + after  # of one step; those of others are as many
        counts = [sum(map(self._is_one, events)) for events in trace]
        return bool(counts) and min(counts) >= max(1, self.sizes.count(self.size)) * passes

    def _is_one(self, event: Event) -> bool:
        of_size = (event.phase, event.elements) == (self.phase, self.size)
        return event.op in SUMS and of_size and event.module in self.modules
