"""The norm of all gradients that the ranks had: what it was judged by, and what others would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tpcheck.bounds import total_norm
from tpcheck.case import Case
from tpcheck.placement import holds, take
from tpcheck.protocol.problem import Problem, Target
from tpcheck.tensors.draw import torch_dtype
from tpcheck.tensors.names import InPass, Key
from tpcheck.vocabulary import Kind


@dataclass(frozen=True)
class OwnGradients:
    """Gradients of parameters in one step, as the ranks had them.

    Args:
        problem: what these ranks were given.
        dumps: rank → every tensor that it held.
        same_data: ranks that have the data of one dp coordinate.
        shared: whether gradients are the same on all dp coordinates.
        placed: a target as the ranks have it placed.
        step: of training, from 0.
        order: that of the norm.
    """

    case: Case
    problem: Problem
    dumps: Mapping[int, Mapping[Key, Tensor]]
    same_data: list[int]
    step: int
    order: float
    shared: bool
    placed: Callable[[Target], Target]

    @cached_property
    def ranks(self) -> list[int]:
        """The ranks that together have them."""
        entries = (target.entry for target in self.targets)
        return total_norm.owners(entries, self.case, self.same_data[0], shared=self.shared)

    @cached_property
    def targets(self) -> list[Target]:
        """Of tied ones that under the first of their names."""
        return [self.placed(target) for target in self._targets()]

    def _targets(self) -> Iterator[Target]:
        seen: set[int] = set()
        for target in self.problem.targets:
            name = InPass.parse(target.name)
            tensor = self.problem.params.get(name.base)
            own = target.kind is Kind.PARAM_GRAD and name.at.step == self.step
            if own and tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield target

    def held(self, target: Target) -> dict[int, Tensor] | None:
        """What the ranks that have any of a gradient had; None where one had another shape."""
        held = {}
        for rank in self.ranks:
            if not holds(target.entry, case=self.case, rank=rank):
                continue
            own = take(target.value, target.entry, case=self.case, rank=rank)
            given = self.dumps.get(rank, {}).get(Key(target.kind, target.name))
            if given is None and (target.unused or not own.numel()):
                given = torch.zeros_like(own)
            if given is None or given.shape != own.shape:
                return None
            held[rank] = given
        return held

    def expected(self, target: Target) -> dict[int, Tensor]:
        """What they were to have."""
        return {
            rank: take(target.value, target.entry, case=self.case, rank=rank)
            for rank in self.ranks
            if holds(target.entry, case=self.case, rank=rank)
        }

    def counted(self, target: Target, held: Mapping[int, Tensor], ranks: list[int]) -> Tensor:
        """What some of the ranks add to the norm together [3], each element once."""
        shares = total_norm.shares(target.entry, target.value.shape, self.case, ranks)
        parts = [total_norm.part(held[r], shares[r], self.order).cpu() for r in ranks if r in held]
        if not parts:
            return torch.zeros(3, dtype=torch.float64)
        return total_norm.together(torch.stack(parts), self.order)

    def as_judged(self, norm: Target) -> Target:
        """The norm's target as the ranks judged it: by these gradients, where they are there. Its σ
        is half of that, since these are the very numbers, and need no doubled bounds."""
        rows = []
        for target in self.targets:
            apart = total_norm.is_apart(target.entry, self.case, shared=self.shared)
            if apart or (held := self.held(target)) is None:
                return norm
            rows.append(self.counted(target, held, self.ranks))
        if not rows:
            return norm
        about = torch.stack(rows), self.order, torch_dtype(self.case), len(self.ranks)
        key = Key(norm.kind, norm.name)
        each = [total_norm.expected(*about, self.dumps[rank][key]) for rank in self.same_data]
        found = [one for one in each if one is not None]
        if not found:
            return norm
        closest = min(found, key=lambda one: float(one.spread.sigma))
        spread = replace(closest.spread, sigma=closest.spread.sigma / 2)
        return replace(norm, value=closest.value, spread=spread)
