"""Hypotheses about sums of which some terms are missing: the reference is asked for each term, by
leaving all others out of its inputs or cotangents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tpcheck.causes.terms import SomeTermsOnly
from tpcheck.causes.where import Side
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.reference import with_other
from tpcheck.placement import Shard, by_axis, take
from tpcheck.tensors.names import FIRST
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: Terms of a sum of which every choice is compared, 2 ** 10: one more doubles the time.
MOST_TERMS = 10
#: Elements of a tensor by which most choices are ruled out before all of it is compared.
FEW = 64


@dataclass(frozen=True)
class _Terms:
    """The terms of which the reference is the sum: one for each position of an input or cotangent
    along `dim`."""

    side: Side
    name: str
    dim: int
    full: list[Tensor]


def own_terms_only(facts: Facts, local: Local) -> Diagnosis | None:
    """As `some_terms_only`, where they are those of the rank's own part of the sequence."""
    if local.kind is not Kind.PARAM_GRAD:
        return None
    named = some_terms_only(facts, local)
    return named if named is not None and named.code is Code.PARTIAL_NOT_REDUCED else None


def some_terms_only(facts: Facts, local: Local) -> Diagnosis | None:
    """The wrong tensor is the sum over some of the terms of which the reference is the sum: over
    positions, in backward; over input features, forward."""
    if local.target.dtype not in (torch.float64, torch.float32) or local.at != FIRST:
        return None
    for side, name, dim in _sums(facts, local):
        terms = _terms(facts, local, side, name, dim)
        named = None if terms is None else _chosen(facts, local, terms)
        if named is not None:
            return named
    return None


def _sums(facts: Facts, local: Local) -> Iterator[tuple[Side, str, int]]:
    """The inputs or cotangents, and their dims, over which the tensor may be a sum."""
    problem = facts.posed.problems[0]
    if local.kind.is_gradient:
        side, tensors = Side.COTANGENT, problem.cotangents[0]
    elif local.kind is Kind.OUTPUT:
        side, tensors = Side.INPUT, problem.inputs[0]
    else:
        return
    for name, tensor in tensors.items():
        dims = (1, 0) if side is Side.COTANGENT else (tensor.ndim - 1,)
        for dim in dims if tensor.is_floating_point() else ():
            if tensor.ndim > dim and 1 < tensor.shape[dim] <= MOST_TERMS:
                yield side, name, dim


def _terms(facts: Facts, local: Local, side: Side, name: str, dim: int) -> _Terms | None:
    """The terms; None where the reference can't be asked, or is not the sum of them."""
    problem = facts.posed.problems[0]
    tensor = (problem.inputs if side is Side.INPUT else problem.cotangents)[0][name]
    terms = []
    for i in range(tensor.shape[dim]):
        mask = torch.zeros(tensor.shape[dim], dtype=tensor.dtype)
        mask[i] = 1
        mask = mask.reshape([-1 if d == dim else 1 for d in range(tensor.ndim)])
        term = with_other(facts, local, side, name, partial(torch.mul, mask))
        if term is None:
            return None
        terms.append(term)
    value = local.target.value
    is_sum = ((sum(terms) - value).abs() <= 1e-9 * value.abs().max()).all()
    return _Terms(side, name, dim, terms) if bool(is_sum) else None


def _chosen(facts: Facts, local: Local, terms: _Terms) -> Diagnosis | None:
    """Which of the terms each wrong rank has, where that is some of them."""
    choices = {rank: _subset(local, rank, terms.full) for rank in local.wrong()}
    if any(choice is None for choice in choices.values()):
        return None
    kept = {r: tuple(i for i, k in enumerate(c or ()) if k) for r, c in choices.items()}
    size = len(terms.full)
    parts = _own_positions(facts, terms.dim, size)
    if terms.side is Side.INPUT:
        own = all(positions in parts.values() for positions in kept.values())
    else:
        own = bool(parts) and all(kept[r] == parts[r] for r in kept)
    where = (terms.side, terms.name, terms.dim)
    return Diagnosis(
        _code(local, terms.side, own), SomeTermsOnly(local.subject, *where, kept, size, own)
    )


def _code(local: Local, side: Side, own: bool) -> Code:
    if not own:
        return Code.SHARD_ORDER if side is Side.INPUT else Code.GRADIENT_DROPPED
    return Code.PARTIAL_NOT_REDUCED if local.kind is Kind.PARAM_GRAD else Code.MISSING_ALL_REDUCE


def _own_positions(facts: Facts, dim: int, size: int) -> Mapping[int, tuple[int, ...]]:
    """Which positions along `dim` each rank's part of the inputs or outputs covers, where any is
    sharded along it."""
    for entry in (*facts.posed.outputs.values(), *facts.posed.inputs.values()):
        own = by_axis(entry).get("tp")
        if isinstance(own, Shard) and own.dim == dim:
            index = torch.arange(size).reshape([-1 if d == dim else 1 for d in range(dim + 1)])
            part = partial(take, index, entry, case=facts.case)
            ranks = range(facts.case.world_size)
            return {r: tuple(part(rank=r).flatten().tolist()) for r in ranks}
    return {}


def _subset(local: Local, rank: int, terms: list[Tensor]) -> tuple[int, ...] | None:
    """The one choice of terms whose sum the rank holds; None where there is none, or several."""
    parts = torch.stack([local.part_of(term, rank) for term in terms])
    if parts.shape[1:] != local.actual[rank].shape:
        return None
    hits = []
    for choice in _possible(local, rank, parts.flatten(1)):
        total = parts[choice.bool()].sum(0)
        if local.fits(local.actual[rank], rank, expected=total):
            hits.append(tuple(choice.int().tolist()))
        if len(hits) > 1:
            break
    return hits[0] if len(hits) == 1 else None


def _possible(local: Local, rank: int, parts: Tensor) -> Tensor:
    """The choices of some of the terms [n, numel] whose sums may be what the rank holds: a few
    elements, the most wrong one and each term's largest among them, have the rest ruled out."""
    n, size = parts.shape
    choices = torch.cartesian_prod(*[torch.arange(2.0, dtype=parts.dtype)] * n).reshape(-1, n)
    choices = choices[(choices.sum(1) > 0) & (choices.sum(1) < n)]
    if not size:
        return choices
    actual = local.actual[rank].flatten()
    off = (actual - local.expected[rank].flatten()).abs().nan_to_num(torch.inf)
    largest_of = parts.abs().nan_to_num(0.0)
    even = torch.linspace(0, size - 1, FEW).long()
    at = torch.cat([even, largest_of.argmax(1), off.argmax(0, keepdim=True)]).unique()
    at = at[actual[at].isfinite() & parts[:, at].isfinite().all(0)]
    own = local.sigma[rank]
    if own.numel() == size:
        at = at[own.flatten()[at].isfinite()]
    apart = (choices @ parts[:, at] - actual[at]).abs()
    return choices[(apart <= local.slack(size) + 1e-12 * largest_of.sum(0).max()).all(1)]
