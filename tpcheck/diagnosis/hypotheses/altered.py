"""Hypotheses that are tested on the reference: what would it give for inputs or cotangents that
were gathered in another order, for a rank's own part of them, or with a parameter's pieces
exchanged?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.causes.altered import (
    AlongDim,
    Gathered,
    OwnPartOnly,
    Regathered,
    Regrouped,
    Reversed,
    Rotated,
    RowsMixed,
)
from tpcheck.causes.where import Side
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.reference import Change, answers, given, with_other
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import pose
from tpcheck.placement import Blocks, Entry, Shard, Sharded, by_axis, take
from tpcheck.spec import Spec
from tpcheck.tensors.draw import Draw
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: The longest dim that is tried in other orders; longer ones have too many.
LONGEST = 64
#: Orders that are tried; the reference is run for each.
MOST_ORDERS = 100


def regathered(facts: Facts, local: Local) -> Diagnosis | None:
    """The reference agrees once the parts of a sharded input (or, in backward, of an input or a
    cotangent) are put together otherwise than they were taken apart."""
    sides = {Side.INPUT: facts.posed.inputs, Side.COTANGENT: facts.posed.outputs}
    problem = facts.posed.problems[0]
    numbers = {Side.INPUT: problem.inputs[0], Side.COTANGENT: problem.cotangents[0]}
    if local.kind is Kind.OUTPUT:
        del sides[Side.COTANGENT]
    for side, entries in sides.items():
        for name, entry in entries.items():
            ndim = numbers[side][name].ndim if name in numbers[side] else 0
            for how, change in _orders(facts.case, entry, ndim):
                full = with_other(facts, local, side, name, change)
                if full is not None and local.is_that(full):
                    cause = Regathered(local.subject, side, name, how)
                    return Diagnosis(Code.SHARD_ORDER, cause)
    return None


def _orders(case: Case, entry: Entry, ndim: int) -> Iterator[tuple[Gathered, Change]]:
    """Wrong ways to put the parts together, for a tensor that is sharded along one dim."""
    own = by_axis(entry).get("tp")
    if not isinstance(own, Shard) or case.tp < 2 or not ndim:
        return
    dim, tp = own.dim % ndim, case.tp

    def gathered(full: Tensor, *, order: list[int], along: int) -> Tensor:
        parts = full.chunk(tp, dim)
        if full.shape[dim] % tp or along >= full.ndim:
            return full
        return torch.cat([parts[i] for i in order], along).reshape(full.shape)

    ranks = list(range(tp))
    yield Reversed(), partial(gathered, order=ranks[::-1], along=dim)
    yield Rotated(), partial(gathered, order=ranks[1:] + ranks[:1], along=dim)
    for other in {0, 1, 2} - {dim}:
        yield AlongDim(other, dim), partial(gathered, order=ranks, along=other)


def own_part_only(facts: Facts, local: Local) -> Diagnosis | None:
    """Each wrong rank holds what the reference gives for its own part of the inputs alone: nothing
    arrives of what the other ranks have."""
    if local.kind is not Kind.OUTPUT or not answers(facts, local):
        return None
    sharded: tuple[str, ...] = ()
    for rank in local.wrong():
        sharded, alone = _of_own_part(facts, local, rank)
        if not sharded or alone is None or not local.fits(local.actual[rank], rank, expected=alone):
            return None
    if not sharded:
        return None
    cause = OwnPartOnly(local.subject, tuple(local.wrong()), sharded)
    return Diagnosis(Code.MISSING_ALL_REDUCE, cause)


def _of_own_part(facts: Facts, local: Local, rank: int) -> tuple[tuple[str, ...], Tensor | None]:
    """The inputs of which the rank has a part, and what the reference gives for its parts; None
    where it can't be asked about a part."""
    whole, part = facts.posed.problems[0], partial(take, case=facts.case, rank=rank)
    inputs, cotangents = (
        [{n: part(t, entries[n]) for n, t in own.items()} for own in passes]
        for passes, entries in (
            (whole.inputs, facts.posed.inputs),
            (whole.cotangents, facts.posed.outputs),
        )
    )
    sharded = tuple(n for n, t in inputs[0].items() if t.shape != whole.inputs[0][n].shape)
    try:
        values = given(facts, replace(whole, inputs=inputs, cotangents=cotangents))
    except (RuntimeError, ValueError, IndexError, InvalidArgument):
        return sharded, None
    return sharded, values.get(local.key)


def exchanged_pieces(facts: Facts, local: Local) -> Diagnosis | None:
    """The reference agrees once a sharded parameter's pieces stand in another order: what meets
    them comes out of an exchange, or of a split into heads, regrouped."""
    if local.kind is not Kind.OUTPUT or not answers(facts, local):
        return None
    problem = facts.posed.problems[0]
    orders = (
        (names, dim, groups, order)
        for names, dim in _sharded_together(facts)
        for groups, order in _regrouped(problem.params[names[0]].shape[dim])
    )
    for names, dim, groups, order in islice(orders, MOST_ORDERS):
        by = torch.tensor(order)
        moved = {n: problem.params[n].index_select(dim, by) for n in names}
        other = given(facts, replace(problem, params={**problem.params, **moved}))
        full = other.get(local.key)
        if full is not None and local.is_that(full):
            cause = Regrouped(local.subject, names[0], dim, groups, tuple(order))
            return Diagnosis(Code.SHARD_ORDER, cause)
    return None


def _sharded_together(facts: Facts) -> Iterator[tuple[tuple[str, ...], int]]:
    """Parameters, and the dim along which they are sharded: those of one module that are as long
    there, as a weight and its bias are, then each by itself."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for name, full in facts.posed.problems[0].params.items():
        for dim in _sharded_dims(facts.posed.params[name]):
            module = name.rpartition(".")[0]
            alike.setdefault((module, dim, full.shape[dim]), []).append(name)
    yield from ((tuple(names), dim) for (_, dim, _), names in alike.items() if len(names) > 1)
    yield from (((name,), dim) for (_, dim, _), names in alike.items() for name in names)


def _sharded_dims(entry: Entry) -> set[int]:
    """The dims along which a parameter is sharded."""
    own = by_axis(entry).values()
    return {p.dim for p in own if isinstance(p, Sharded) and not isinstance(p, Blocks)}


def _regrouped(size: int) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """The orders of a dim that is read as [o, a, b, i] and laid out as [o, b, a, i]."""
    index = torch.arange(size)
    for outer in (n for n in range(1, size + 1) if size <= LONGEST and size % n == 0):
        rest = size // outer
        for a in (n for n in range(2, rest) if rest % n == 0):
            for b in (n for n in range(2, rest // a + 1) if (rest // a) % n == 0):
                order = index.reshape(outer, a, b, -1).transpose(1, 2).flatten().tolist()
                yield (a, b), order


def mixed_rows(facts: Facts, local: Local) -> Diagnosis | None:
    """Each row of the reference's output depends on the same row of an input alone, and the
    candidate is right where all rows of that input are one and the same, the first or the one that
    is most wrong: rows meet other rows' results."""
    if facts.spec is None or local.kind is not Kind.OUTPUT or facts.execute is None:
        return None
    for name, tensor in facts.posed.problems[0].inputs[0].items():
        for dim in range(tensor.ndim - 1) if tensor.is_floating_point() else ():
            if tensor.shape[dim] < 2 or not _row_by_row(facts, local, name, dim):
                continue
            if all(_right_where_alike(facts, name, dim, r) for r in {0, _most_wrong(local, dim)}):
                return Diagnosis(Code.SHARD_ORDER, RowsMixed(local.subject, name, dim))
    return None


def _right_where_alike(facts: Facts, name: str, dim: int, row: int) -> bool:
    """Whether the candidate's output is right once each row of an input is what `row` is."""
    assert facts.spec is not None and facts.execute is not None
    alike = replace(facts.spec, inputs=partial(_alike, facts.spec, name, dim, row))
    result = facts.execute(pose(alike, replace(facts.case, microbatches=1, step=False)))
    return all(m.kind.is_gradient for m in result.mismatches)


def _alike(spec: Spec, name: str, dim: int, row: int, case: Case, draw: Draw) -> dict[str, Tensor]:
    inputs = dict(spec.inputs(case, draw))
    rows = inputs[name]
    inputs[name] = rows.narrow(dim, min(row, rows.shape[dim] - 1), 1).expand_as(rows).clone()
    return inputs


def _most_wrong(local: Local, dim: int) -> int:
    """Which row of the reference's output, along `dim`, is furthest from what a rank has."""
    value = local.target.value
    numbers = torch.arange(value.shape[dim], dtype=value.dtype)
    shape = [-1 if d == dim else 1 for d in range(value.ndim)]
    rows = numbers.reshape(shape).expand_as(value)
    off = {
        r: (local.actual[r] - local.expected[r]).abs().nan_to_num(torch.inf) for r in local.ranks
    }
    rank = max(local.ranks, key=lambda r: float(off[r].max()) if off[r].numel() else 0.0)
    return int(local.part_of(rows, rank).flatten()[int(off[rank].argmax())])


def _row_by_row(facts: Facts, local: Local, name: str, dim: int) -> bool:
    """Whether, in the reference, another first row of the input changes the output's first row
    and no other."""
    want = local.target.value

    def other_first_row(full: Tensor) -> Tensor:
        new = full.clone()
        new.narrow(dim, 0, 1).mul_(-2)
        return new

    full = with_other(facts, local, Side.INPUT, name, other_first_row)
    if full is None or full.shape != want.shape or want.ndim <= dim or want.shape[dim] < 2:
        return False
    full, want = full.double(), want.double()  # flags have no difference
    changed = (full - want).abs() > 1e-9 * want.abs().max()
    changed = changed.movedim(dim, 0).reshape(want.shape[dim], -1).any(1)
    return bool(changed[0]) and not bool(changed[1:].any())
