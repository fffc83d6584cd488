"""A rank's share of inputs and cotangents: sliced by the layout, or terms of them, in the case's
memory format."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from tpcheck import placement
from tpcheck.placement import Entry, take
from tpcheck.protocol.messages import Work
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.leaves import leaves
from tpcheck.tensors.live import is_dtensor, like, placed_whole
from tpcheck.tensors.strides import format_of, lay_out
from tpcheck.tensors.terms import term


class Share:
    """What one rank computes with. Tensors that the layout has on other ranks are left out.

    Args:
        constants: inputs that are contiguous and take no gradient.
    """

    def __init__(
        self, work: Work, problem: Problem, rank: int, constants: Collection[str] = ()
    ) -> None:
        self.work, self.case, self.constants = work, work.case, constants
        self.problem, self.rank = problem, rank
        self.scale = 1.0  # of the loss, in this step: a power of two

    def leaves(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of each full input; floats take gradients, all or
        those that the case asks for."""
        here = self.work.inputs
        return leaves(self.case, inputs, self._leaf, lambda name: self._has(here[name]))

    def seeds(self, m: int) -> dict[str, Tensor]:
        """This rank's part of each output's cotangent in microbatch `m`, by the layout."""
        return {
            name: self._laid_out(name, full, entry)
            for name, full in self._cotangents(m).items()
            if self._has(entry := self.work.outputs[name])
        }

    def upstream(self, outputs: Mapping[str, Tensor], m: int) -> dict[str, Tensor]:
        """The cotangents of the outputs that backward starts from: a DTensor's under its own
        placements, whatever the layout says."""
        seeds = {}
        cotangents = self._cotangents(m)
        for name, output in outputs.items():
            if name not in cotangents or not output.requires_grad:
                continue
            planned = self.work.outputs[name]
            full, entry = cotangents[name], planned
            if is_dtensor(output):
                entry = placed_whole(output, full, planned, self.case, self.rank)
            seed = self._part(full, entry).to(output.dtype)
            seeds[name] = like(output, self._in_memory(name, seed))
        return seeds

    def _cotangents(self, m: int) -> Mapping[str, Tensor]:
        """Of a microbatch, times the scale of the loss; none where no output takes one."""
        if m >= len(self.problem.cotangents):
            return {}
        drawn = self.problem.cotangents[m]
        return drawn if self.scale == 1.0 else {n: t * self.scale for n, t in drawn.items()}

    def _leaf(self, name: str, full: Tensor, asked: bool) -> Tensor:
        drawn = full.is_floating_point() and name not in self.constants
        part = term(name, full, self.work.inputs[name], self.case, self.rank)
        part = self._in_memory(name, part) if drawn else part.clone()
        return part.detach().requires_grad_(asked and drawn)

    def _laid_out(self, name: str, full: Tensor, entry: Entry) -> Tensor:
        return self._in_memory(name, self._part(full, entry))

    def _in_memory(self, name: str, part: Tensor) -> Tensor:
        return lay_out(part, format_of(self.case, name))

    def _part(self, full: Tensor, entry: Entry) -> Tensor:
        return take(full, entry, case=self.case, rank=self.rank)

    def _has(self, entry: Entry) -> bool:
        return placement.holds(entry, case=self.case, rank=self.rank)
