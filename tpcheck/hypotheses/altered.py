"""Hypotheses that are tested on the reference: what would it give for inputs or cotangents that
were gathered in another order, or of which some are missing?

Letters: R degree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from tpcheck import oracle
from tpcheck.facts import Facts, Local, name_of
from tpcheck.placement import Entry, Shard, by_axis, take
from tpcheck.verdict import Diagnosis

MOST_TERMS = 10  # 2 ** 10 sums are compared
Change = Callable[[str, Tensor], Tensor]  # (name, full tensor) → what stands in its place


def regathered(facts: Facts, local: Local) -> Diagnosis | None:
    """The reference agrees once the parts of a sharded input (or, in backward, of an input or a
    cotangent) are put together otherwise than they were cut."""
    for side, entries in (("input", facts.posed.inputs), ("cotangent", facts.posed.outputs)):
        if side == "cotangent" and local.target.kind == "output":
            continue
        for name, entry in entries.items():
            for how, change in _orders(facts, entry):
                found = _full(facts, local, side, _only(name, change))
                if found is not None and all(_holds(local, r, found) for r in local.wrong()):
                    message = f"{name_of(local)} is what the parts of {name}, {how}, would give"
                    return Diagnosis("shard-order", message, {side: name, "gathered": how})
    return None


def _only(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda other, full: change(full) if other == name else full


def _orders(facts: Facts, entry: Entry) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Wrong ways to put the parts together, for a tensor that is sharded along one dim."""
    own = by_axis(entry).get("tp")
    if not isinstance(own, Shard) or facts.case.tp < 2:
        return
    dim, tp = own.dim, facts.case.tp

    def gathered(full: Tensor, *, order: list[int], along: int) -> Tensor:
        parts = full.chunk(tp, dim)
        if full.shape[dim] % tp or along >= full.ndim:
            return full
        return torch.cat([parts[i] for i in order], along).reshape(full.shape)

    ranks = list(range(tp))
    yield "in reversed order", partial(gathered, order=ranks[::-1], along=dim)
    yield "one rank off", partial(gathered, order=ranks[1:] + ranks[:1], along=dim)
    for other in {0, 1, 2} - {dim}:
        how = f"gathered along dim {other} instead of {dim}"
        yield how, partial(gathered, order=ranks, along=other)


def own_terms_only(facts: Facts, local: Local) -> Diagnosis | None:
    """As `some_terms_only`, where they are those of the rank's own part of the sequence."""
    found = some_terms_only(facts, local) if local.target.kind == "param_grad" else None
    return found if found is not None and found.code == "partial-not-reduced" else None


def some_terms_only(facts: Facts, local: Local) -> Diagnosis | None:
    """The wrong tensor is the sum over some of the terms of which the reference is the sum: over
    positions, in backward; over input features, forward."""
    if local.target.dtype not in (torch.float64, torch.float32) or "@" in local.target.name:
        return None
    backward = local.target.kind in ("param_grad", "input_grad")
    if not backward and local.target.kind != "output":
        return None
    side = "cotangent" if backward else "input"
    given = facts.posed.problems[0].cotangents if backward else facts.posed.problems[0].inputs
    for name, tensor in given[0].items():
        if not tensor.is_floating_point():
            continue
        for dim in (1, 0) if backward else (tensor.ndim - 1,):
            if tensor.ndim > dim and 1 < tensor.shape[dim] <= MOST_TERMS:
                found = _missing(facts, local, side, name, dim)
                if found is not None:
                    return found
    return None


def _missing(facts: Facts, local: Local, side: str, name: str, dim: int) -> Diagnosis | None:
    given = facts.posed.problems[0]
    tensor = (given.inputs if side == "input" else given.cotangents)[0][name]
    terms = []
    for i in range(tensor.shape[dim]):
        mask = torch.zeros(tensor.shape[dim], dtype=tensor.dtype)
        mask[i] = 1
        mask = mask.reshape([-1 if d == dim else 1 for d in range(tensor.ndim)])
        term = _full(facts, local, side, _only(name, partial(torch.mul, mask)))
        if term is None:
            return None
        terms.append(term)
    if not bool(
        ((sum(terms) - local.target.value).abs() <= 1e-9 * local.target.value.abs().max()).all()
    ):
        return None  # the reference is not the sum of these terms
    kept = {rank: _subset(local, rank, terms) for rank in local.wrong()}
    if any(chosen is None for chosen in kept.values()):
        return None
    chosen = {rank: [i for i, k in enumerate(c or ()) if k] for rank, c in kept.items()}
    first = next(iter(chosen))
    message = (
        f"{name_of(local)} of rank {first} counts only {chosen[first]} of the "
        f"{len(terms)} positions along dim {dim} of {name}"
    )
    evidence = {"kept": {str(r): c for r, c in chosen.items()}, "of": len(terms)}
    own = _own_positions(facts, dim, len(terms))
    if side == "input":
        if all(kept in own.values() for kept in chosen.values()):
            return Diagnosis("missing-all-reduce", f"{message}: one rank's term", evidence)
        return Diagnosis("shard-order", f"{message}: the parts don't cover it", evidence)
    if own and all(chosen[r] == own[r] for r in chosen):
        summed = local.target.kind == "param_grad"
        code = "partial-not-reduced" if summed else "missing-all-reduce"
        return Diagnosis(code, f"{message}: this rank's own (backward)", evidence)
    return Diagnosis("gradient-dropped", message, evidence)


def _own_positions(facts: Facts, dim: int, size: int) -> dict[int, list[int]]:
    """Which positions along `dim` each rank's part of the inputs or outputs covers, where any is
    cut along it."""
    for entry in (*facts.posed.outputs.values(), *facts.posed.inputs.values()):
        own = by_axis(entry).get("tp")
        if isinstance(own, Shard) and own.dim == dim:
            index = torch.arange(size).reshape([-1 if d == dim else 1 for d in range(dim + 1)])
            ranks = range(facts.case.world_size)
            return {
                r: take(index, entry, case=facts.case, rank=r).flatten().tolist() for r in ranks
            }
    return {}


def _subset(local: Local, rank: int, terms: list[Tensor]) -> tuple[int, ...] | None:
    """The one choice of terms whose sum the rank holds; None where there is none, or several."""
    parts = [_cut(local, rank, term) for term in terms]
    hits = []
    for choice in product((0, 1), repeat=len(parts)):
        if 0 < sum(choice) < len(parts):
            total = sum(p for p, kept in zip(parts, choice, strict=True) if kept)
            if isinstance(total, Tensor) and local.fits(local.actual[rank], rank, expected=total):
                hits.append(choice)
    return hits[0] if len(hits) == 1 else None


def _cut(local: Local, rank: int, full: Tensor) -> Tensor:
    return take(full, local.target.entry, case=local.case, rank=rank)


def _holds(local: Local, rank: int, full: Tensor) -> bool:
    return local.fits(local.actual[rank], rank, expected=_cut(local, rank, full))


def _full(facts: Facts, local: Local, side: str, change: Change) -> Tensor | None:
    """What the reference has in the place of the wrong tensor once `change` was applied to its
    inputs or cotangents; None where that can't be asked."""
    if facts.spec is None or facts.case.dp > 1:
        return None
    if (local.target.kind, local.target.name) not in {
        (t.kind, t.name) for t in facts.posed.problems[0].targets
    }:
        return None  # a tensor inside
    problem = facts.posed.problems[0]
    passes = problem.inputs if side == "input" else problem.cotangents
    other = [{n: change(n, t) for n, t in own.items()} for own in passes]
    new = replace(problem, inputs=other) if side == "input" else replace(problem, cotangents=other)
    return _values(facts, new).get((local.target.kind, local.target.name))


def _values(facts: Facts, problem: oracle.Problem) -> Mapping[tuple[str, str], Tensor]:
    assert facts.spec is not None
    return oracle.evaluate(facts.spec, facts.case, problem)
