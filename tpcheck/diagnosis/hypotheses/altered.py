"""Hypotheses that are tested on the reference: what would it give for inputs or cotangents that
were gathered in another order, or of which some are missing, or with a parameter's pieces
exchanged?

Letters: R degree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, product

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.diagnosis.evidence import Facts, Local, name_of
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import evaluate, pose
from tpcheck.placement import Blocks, Entry, Shard, Sharded, by_axis, take
from tpcheck.protocol.problem import Problem
from tpcheck.spec import Spec
from tpcheck.tensors.draw import Draw
from tpcheck.verdict import Diagnosis

MOST_TERMS = 10  # 2 ** 10 sums are compared
LONGEST = 64  # dims up to this size are tried in other orders
MOST_ORDERS = 100  # the reference is run for each
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


def own_part_only(facts: Facts, local: Local) -> Diagnosis | None:
    """Each wrong rank holds what the reference gives for its own part of the inputs alone: nothing
    arrives of what the other ranks have."""
    if local.target.kind != "output" or not _can_be_asked(facts, local):
        return None
    whole = facts.posed.problems[0]
    cut = {}
    for rank in local.wrong():
        part = partial(take, case=facts.case, rank=rank)
        inputs, cotangents = (
            [{n: part(t, entries[n]) for n, t in own.items()} for own in passes]
            for passes, entries in (
                (whole.inputs, facts.posed.inputs),
                (whole.cotangents, facts.posed.outputs),
            )
        )
        cut = {n: t.shape for n, t in inputs[0].items() if t.shape != whole.inputs[0][n].shape}
        try:
            values = _values(facts, replace(whole, inputs=inputs, cotangents=cotangents))
        except (RuntimeError, ValueError, IndexError, InvalidArgument):
            return None  # the reference can't be asked about a part
        alone = values.get((local.target.kind, local.target.name))
        if not cut or alone is None or not local.fits(local.actual[rank], rank, expected=alone):
            return None
    if not cut:
        return None
    message = (
        f"{name_of(local)} of ranks {local.wrong()} is what the reference gives for their own part "
        f"of {', '.join(cut)} alone: what other ranks hold of it never arrives (forward)"
    )
    return Diagnosis("missing-all-reduce", message, {"ranks": local.wrong(), "inputs": list(cut)})


def exchanged_pieces(facts: Facts, local: Local) -> Diagnosis | None:
    """The reference agrees once a sharded parameter's pieces stand in another order: what meets
    them comes out of an exchange, or of a split into heads, regrouped."""
    if local.target.kind != "output" or not _can_be_asked(facts, local):
        return None
    problem = facts.posed.problems[0]
    orders = (
        (name, dim, how, order)
        for name, full in problem.params.items()
        for dim in _cut_dims(facts.posed.params[name])
        for how, order in _regrouped(full.shape[dim])
    )
    for name, dim, how, order in islice(orders, MOST_ORDERS):
        moved = problem.params[name].index_select(dim, torch.tensor(order))
        found = _values(facts, replace(problem, params={**problem.params, name: moved})).get(
            (local.target.kind, local.target.name)
        )
        if found is not None and all(_holds(local, r, found) for r in local.wrong()):
            message = (
                f"{name_of(local)} is what dim {dim} of {name} regrouped {how} would give: "
                "what meets it arrives in another order"
            )
            return Diagnosis("shard-order", message, {"parameter": name, "order": order})
    return None


def _cut_dims(entry: Entry) -> set[int]:
    """The dims along which a parameter is cut."""
    own = by_axis(entry).values()
    return {p.dim for p in own if isinstance(p, Sharded) and not isinstance(p, Blocks)}


def _regrouped(size: int) -> Iterator[tuple[str, list[int]]]:
    """The orders of a dim that is read as [o, a, b, i] and laid out as [o, b, a, i]."""
    index = torch.arange(size)
    for outer in (n for n in range(1, size + 1) if size <= LONGEST and size % n == 0):
        rest = size // outer
        for a in (n for n in range(2, rest) if rest % n == 0):
            for b in (n for n in range(2, rest // a + 1) if (rest // a) % n == 0):
                order = index.reshape(outer, a, b, -1).transpose(1, 2).flatten().tolist()
                yield f"from {a} × {b} to {b} × {a}", order


def mixed_rows(facts: Facts, local: Local) -> Diagnosis | None:
    """Each row of the reference's output depends on the same row of an input alone, and the
    candidate is right where all rows of that input are one and the same: rows meet other rows'
    results."""
    if facts.spec is None or local.target.kind != "output" or facts.execute is None:
        return None
    for name, tensor in facts.posed.problems[0].inputs[0].items():
        if not tensor.is_floating_point():
            continue
        for dim in range(tensor.ndim - 1):
            if tensor.shape[dim] < 2 or not _row_by_row(facts, local, name, dim):
                continue
            alike = replace(facts.spec, inputs=partial(_alike, facts.spec, name, dim))
            once = replace(facts.case, microbatches=1, step=False)
            result = facts.execute(pose(alike, once))
            if not any(m.kind not in ("input_grad", "param_grad") for m in result.mismatches):
                message = (
                    f"{name_of(local)} is right where all rows of {name} along dim {dim} are the "
                    "same: rows meet the results of other rows"
                )
                return Diagnosis("shard-order", message, {"mixed": name, "dim": dim})
    return None


def _alike(spec: Spec, name: str, dim: int, case: Case, draw: Draw) -> dict[str, Tensor]:
    given = dict(spec.inputs(case, draw))
    first = given[name].narrow(dim, 0, 1)
    given[name] = first.expand_as(given[name]).clone()
    return given


def _row_by_row(facts: Facts, local: Local, name: str, dim: int) -> bool:
    """Whether, in the reference, another first row of the input changes the output's first row
    and no other."""
    want = local.target.value

    def other_first_row(full: Tensor) -> Tensor:
        new = full.clone()
        new.narrow(dim, 0, 1).mul_(-2)
        return new

    found = _full(facts, local, "input", _only(name, other_first_row))
    if found is None or found.shape != want.shape or want.ndim <= dim or want.shape[dim] < 2:
        return False
    changed = (found - want).abs() > 1e-9 * want.abs().max()
    changed = changed.movedim(dim, 0).reshape(want.shape[dim], -1).any(1)
    return bool(changed[0]) and not bool(changed[1:].any())


def _cut(local: Local, rank: int, full: Tensor) -> Tensor:
    return take(full, local.target.entry, case=local.case, rank=rank)


def _holds(local: Local, rank: int, full: Tensor) -> bool:
    return local.fits(local.actual[rank], rank, expected=_cut(local, rank, full))


def _full(facts: Facts, local: Local, side: str, change: Change) -> Tensor | None:
    """What the reference has in the place of the wrong tensor once `change` was applied to its
    inputs or cotangents; None where that can't be asked."""
    if not _can_be_asked(facts, local):
        return None
    problem = facts.posed.problems[0]
    passes = problem.inputs if side == "input" else problem.cotangents
    other = [{n: change(n, t) for n, t in own.items()} for own in passes]
    new = replace(problem, inputs=other) if side == "input" else replace(problem, cotangents=other)
    return _values(facts, new).get((local.target.kind, local.target.name))


def _can_be_asked(facts: Facts, local: Local) -> bool:
    """Whether the reference can say what it would give in the place of this tensor: not of one
    inside, nor where gradients are combined over dp."""
    known = {(t.kind, t.name) for t in facts.posed.problems[0].targets}
    here = (local.target.kind, local.target.name) in known
    return here and facts.spec is not None and facts.case.dp == 1


def _values(facts: Facts, problem: Problem) -> Mapping[tuple[str, str], Tensor]:
    assert facts.spec is not None
    return evaluate(facts.spec, facts.case, problem)[0]
