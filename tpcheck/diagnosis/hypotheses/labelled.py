"""Logits whose columns are sharded, one of which is each token's own: what the hypotheses about
losses, and about targets, are asked of.

Legend: T tokens, W columns, R degree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.placement import Shard, by_axis, take
from tpcheck.tensors.names import FIRST
from tpcheck.vocabulary import Kind


@dataclass(frozen=True)
class Labelled:
    """Logits of which one column per token is its own.

    Args:
        name, ids_name: of the two inputs.
        logits: [T, W], float64.
        ids: [T].
        held: rank → the columns that it has.
        used: the columns [W] that have a gradient for some token.
        counted: the tokens [T] that have a gradient.
    """

    name: str
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


def labelled(facts: Facts, local: Local) -> Labelled | None:
    """None where the inputs are not such logits and the ids of their columns."""
    d = facts.case.coordinates(local.ranks[0]).get("dp", 0)
    problem = facts.posed.problems[d]
    if local.at != FIRST or facts.case.tp < 2 or not problem.inputs:
        return None
    inputs = problem.inputs[0]
    ids = [n for n, t in inputs.items() if not t.is_floating_point()]
    logits = [n for n in inputs if n not in ids and _by_column(facts, n, inputs[n])]
    if len(ids) != 1 or len(logits) != 1:
        return None
    (name,), (ids_name,) = logits, ids
    full, given = inputs[name], inputs[ids_name]
    if given.shape != full.shape[:-1] or not full.numel():
        return None
    width, entry = full.shape[-1], facts.posed.inputs[name]
    numbers = torch.arange(width).expand(full.shape)
    held = {
        r: take(numbers, entry, case=facts.case, rank=r).reshape(given.numel(), -1)[0]
        for r in local.ranks
    }
    of_logits = (t for t in problem.targets if (t.kind, t.name) == (Kind.INPUT_GRAD, name))
    gradient = next((t.value.reshape(-1, width) for t in of_logits), None)
    moved = torch.ones(given.numel(), width) if gradient is None else gradient
    used, counted = (moved != 0).any(0), (moved != 0).any(1)
    return Labelled(
        name, ids_name, full.double().reshape(-1, width), given.flatten(), held, used, counted
    )


def _by_column(facts: Facts, name: str, tensor: Tensor) -> bool:
    own = by_axis(facts.posed.inputs[name]).get("tp")
    return isinstance(own, Shard) and tensor.ndim > 1 and own.dim % tensor.ndim == tensor.ndim - 1
