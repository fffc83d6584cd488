"""What a rank holds once its parameters are loaded, against what it should."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from tpcheck.bounds.computed import alike, not_as_saved, unlike
from tpcheck.placement import Entry, holds, take
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.forms import is_freed
from tpcheck.tensors.live import local


class Loaded:
    """Fills `report` with what is wrong.

    Args:
        state: what a checkpoint of the reference holds, full.
        held: the candidate's own parameters and buffers.
    """

    def __init__(
        self,
        work: Work,
        problem: Problem,
        report: RankReport,
        state: Mapping[str, Tensor],
        held: Mapping[str, Tensor],
    ) -> None:
        self.work, self.problem, self.report = work, problem, report
        self.state, self.held = state, held

    def due(self) -> dict[str, Tensor]:
        """The rank's part of what a checkpoint has, as the candidate's own tensors are placed."""
        return {name: self._part(name) for name in self.report.entries.keys() & self.held.keys()}

    def compare(self, given: Collection[str]) -> None:
        """What came from the candidate's own checkpoint is what went into it, to the bit; of a full
        state, integers and bools are, which may enter where no float that is compared comes from
        them.

        Args:
            given: integers and bools that the check's own loader was to bring.
        """
        saved = bool(self.work.checkpoint) and not self.work.saving
        asked = self.held if saved else given
        for name in sorted(self.state.keys() & self.held.keys() & {*asked}):
            wrong = (not_as_saved if saved else unlike)(
                local(self.held[name]), self._part(name), name=name, rank=self.report.rank
            )
            self.report.mismatches += [] if wrong is None else [wrong]

    def computed(self) -> set[str]:
        """Buffers that the candidate computes, against the reference's; returns those that are
        something else. What differs by a few roundings gets these, so that they do not matter; all
        else is left alone: one that is wrong is said to be, and of one between them the outputs
        tell."""
        case, rank, apart = self.work.case, self.report.rank, set()
        for name in sorted(self.work.computed & self.held.keys()):
            entry, here = self.work.params[name], local(self.held[name])
            due = self._take(self.problem.params[name], entry)
            if not holds(entry, case=case, rank=rank) or here.shape != due.shape:
                apart.add(name)  # its own affair
                continue
            if not case.integers:  # which no computed number need be
                wrong = unlike(here, due, name=name, rank=rank)
                self.report.mismatches += [] if wrong is None else [wrong]
                if not alike(here, due):
                    apart.add(name)
                    continue
            if not _overlaps(here) and not torch.equal(here, due.to(here)):
                fill(here, due)
        return apart

    def _part(self, name: str) -> Tensor:
        return self._take(self.state[name], self.report.entries[name])

    def _take(self, full: Tensor, entry: Entry) -> Tensor:
        return take(full, entry, case=self.work.case, rank=self.report.rank)


@torch.no_grad()
def fill(here: Tensor, part: Tensor) -> None:
    """Copies a part in; what is not written is NaN."""
    if is_freed(here):
        return  # its loader gives it memory
    if here.is_floating_point():
        here.fill_(torch.nan)
    here.copy_(part)


def _overlaps(tensor: Tensor) -> bool:
    """Whether several of its elements are one in memory, so that it can't be written."""
    return any(n > 1 and not by for n, by in zip(tensor.shape, tensor.stride(), strict=True))
