"""Logits whose columns are sharded, one of which is each token's own: what the hypotheses about
losses, and about targets, are asked of. They are an input, or the product of one with a weight
whose rows are sharded, or what the reference has at a module's boundary.

Legend: T tokens, W columns, R degree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.placement import Entry, Placement, Shard, by_axis, take
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.boundaries import Border
from tpcheck.tensors.names import FIRST
from tpcheck.vocabulary import End, Kind, Phase


@dataclass(frozen=True)
class Labelled:
    """Logits of which one column per token is its own.

    Args:
        name: what they are called; `given` where it is an input's name.
        ids_name: the input with the ids.
        logits: [T, W], float64.
        ids: [T].
        held: rank → the columns that it has.
        used: the columns [W] that have a gradient for some token, as far as that is known.
        counted: the tokens [T] that have a gradient.
    """

    name: str
    given: bool
    ids_name: str
    logits: Tensor
    ids: Tensor
    held: Mapping[int, Tensor]
    used: Tensor
    counted: Tensor

    @property
    def owner(self) -> Tensor:
        """The place, among the ranks, of the one that has each column [W]."""
        owner = torch.zeros(self.logits.shape[1], dtype=torch.long)
        for place, columns in enumerate(self.held.values()):
            owner[columns] = place
        return owner


@dataclass(frozen=True)
class _Logits:
    """What may be logits: [..., W], and how their columns are sharded, as a dim of a tensor."""

    name: str
    full: Tensor
    entry: Entry
    given: bool = False


def labelled(facts: Facts, local: Local) -> Labelled | None:
    """None where there are no such logits, or no ids of their columns."""
    d = facts.case.dp_coordinate(local.ranks[0])
    problem = facts.posed.problems[d]
    if local.at != FIRST or facts.case.tp < 2 or not problem.inputs:
        return None
    inputs = problem.inputs[0]
    ids = [n for n, t in inputs.items() if not t.is_floating_point() and t.dtype != torch.bool]
    for found in _logits(facts, problem) if ids else ():
        given = inputs[ids[-1]]  # targets come after what is looked up
        if given.shape == found.full.shape[:-1] and found.full.numel():
            return _of(facts, local, problem, found, ids[-1])
    return None


def _of(facts: Facts, local: Local, problem: Problem, found: _Logits, ids_name: str) -> Labelled:
    width, ids = found.full.shape[-1], problem.inputs[0][ids_name].flatten()
    numbers = torch.arange(width)
    held = {r: take(numbers, found.entry, case=facts.case, rank=r) for r in local.ranks}
    targets = problem.targets if found.given else []
    own = (t for t in targets if (t.kind, t.name) == (Kind.INPUT_GRAD, found.name))
    gradient = next((t.value.reshape(-1, width) for t in own), None)
    in_range = ((ids >= 0) & (ids < width))[:, None].expand(-1, width)
    moved = in_range if gradient is None else gradient != 0
    logits = found.full.double().reshape(-1, width)
    used, counted = moved.any(0), moved.any(1)
    return Labelled(found.name, found.given, ids_name, logits, ids, held, used, counted)


def _logits(facts: Facts, problem: Problem) -> Iterator[_Logits]:
    """An input whose columns are sharded; what goes into a loss inside; an input times a weight
    whose rows are."""
    inputs = problem.inputs[0]
    for name, tensor in inputs.items():
        dim = _dim(by_axis(facts.posed.inputs[name]).get("tp"))
        if dim is not None and tensor.ndim > 1 and dim % tensor.ndim == tensor.ndim - 1:
            yield _Logits(name, tensor, Shard(0), given=True)
    rows = {
        name: weight
        for name, weight in problem.params.items()
        if weight.ndim == 2 and _dim(by_axis(facts.posed.params[name]).get("tp")) == 0
    }
    sizes = {len(weight) for weight in rows.values()}
    for target in reversed(problem.borders):  # the last before the loss
        border, value = Border.of(target.name), target.value
        forward_out = (border.phase, border.side) == (Phase.FORWARD, End.OUT)
        if forward_out and value.ndim > 1 and value.shape[-1] in sizes:
            yield _Logits(f"what {border.module} returns", value, Shard(0))
    for name, tensor in inputs.items():
        for weight in rows.values() if tensor.is_floating_point() else ():
            if tensor.ndim and tensor.shape[-1] == weight.shape[1]:
                product = tensor.double() @ weight.double().T
                yield _Logits(f"{name} times the weight", product, Shard(0))


def _dim(placement: Placement | None) -> int | None:
    """The dim along which it shards as `torch.chunk` does."""
    return placement.dim if isinstance(placement, Shard) else None
