"""Hypotheses about what the candidate's own loader left in the parameters, and about buffers that
the candidate computes for itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tpcheck.bounds.computed import alike
from tpcheck.causes.loaded import (
    ComputedOtherwise,
    LoadedAnother,
    LoadedApart,
    LoadedElements,
    LoadedIntegers,
    LoadedNaN,
    LoadedRounded,
    LoadedRows,
    LoadedScaled,
)
from tpcheck.diagnosis.facts import Facts
from tpcheck.placement import take
from tpcheck.tensors.names import Key, Shelf
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code

#: Relative error up to which a parameter was rounded rather than replaced: float16 and bfloat16
#: round by 2^-8 at most. Larger would take a parameter that was perturbed for a rounded one.
ROUNDED = 0.02
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class Loaded:
    """A parameter as one rank's loader left it, what it should be, and the full one, float64."""

    name: str
    rank: int
    got: Tensor
    want: Tensor
    full: Tensor
    exact: bool = False  # integers or bools

    @property
    def code(self) -> Code:
        """Of other rows than the layout's: query, key and value are cut by heads."""
        projection = any(part in self.name for part in _PROJECTIONS)
        return Code.KV_HEAD_MAP if projection else Code.SHARD_ORDER


def misloaded(facts: Facts) -> Diagnosis | None:
    """The first parameter that its loader left otherwise than the layout's slice, on one rank."""
    for loaded in wrong(facts):
        if loaded.name in facts.posed.computed:
            return _miscomputed(facts, loaded)
        if loaded.exact:
            return _other_integers(facts, loaded)
        return of_numbers(facts, loaded)
    return None


def of_numbers(facts: Facts, loaded: Loaded) -> Diagnosis | None:
    """What the numbers say that a loader left."""
    return (
        _not_copied(loaded)
        or _other_rows(loaded)
        or _other_elements(loaded)
        or _of_another(facts, loaded)
        or _apart(facts, loaded)
        or _scaled(loaded)
    )


def wrong(facts: Facts) -> Iterator[Loaded]:
    """What is not, before the first forward, what it should be."""
    for name, full in facts.posed.problems[0].params.items():
        entry = facts.posed.params[name]
        for rank, dump in sorted(facts.dumps.items()):
            got = dump.get(Key(Shelf.LOADED, name))
            want = dump.get(Key(Shelf.DUE, name))
            want = take(full, entry, case=facts.case, rank=rank) if want is None else want
            if got is None or got.shape != want.shape or bool((got == want).all()):
                continue
            if name not in facts.posed.computed or not alike(got, want):
                exact = not want.is_floating_point()
                yield Loaded(name, rank, got.double(), want.double(), full.double(), exact)


def _not_copied(loaded: Loaded) -> Diagnosis | None:
    name, rank, got, want = loaded.name, loaded.rank, loaded.got, loaded.want
    if bool(got.isnan().any()):
        return Diagnosis(Code.UNWRITTEN_MEMORY, LoadedNaN(name, rank))
    if float((got - want).norm()) < ROUNDED * float(want.norm()):
        return Diagnosis(Code.PRECISION_LOSS, LoadedRounded(name, rank))
    return None


def _miscomputed(facts: Facts, loaded: Loaded) -> Diagnosis:
    """Of a buffer that the candidate computes: it was left as it is where it differs by more than
    a few roundings."""
    about = ComputedOtherwise(loaded.name, loaded.rank)
    if bool(loaded.got.isnan().any()):
        return Diagnosis(Code.UNWRITTEN_MEMORY, replace(about, nan=True))
    if float((loaded.got - loaded.want).norm()) < ROUNDED * float(loaded.want.norm()):
        return Diagnosis(Code.PRECISION_LOSS, replace(about, rounded=True))
    factor = _factor(loaded.got, loaded.want)
    if factor is not None:
        return Diagnosis(Code.WRONG_BUFFER, replace(about, factor=factor))
    for dim in range(loaded.full.ndim):
        if (rows := _rows_of(loaded.got, loaded.full, dim)) is not None:
            return Diagnosis(Code.WRONG_BUFFER, replace(about, dim=dim, rows=tuple(rows)))
    apart = loaded.want.shape == loaded.full.shape and not _same_on_all(facts, loaded)
    return Diagnosis(Code.WRONG_BUFFER, replace(about, apart=apart))


def _factor(got: Tensor, want: Tensor) -> float | None:
    """How many times `want` it is, in all elements."""
    size = float(want.square().sum())
    factor = float((got * want).sum()) / size if 0.0 < size < math.inf else 0.0
    alike = math.isfinite(factor) and torch.allclose(got, factor * want, rtol=ROUNDED, atol=0.0)
    return factor if alike else None


def _other_rows(loaded: Loaded) -> Diagnosis | None:
    for dim in range(loaded.full.ndim):
        rows = _rows_of(loaded.got, loaded.full, dim)
        if rows is None:
            continue
        due = tuple(_rows_of(loaded.want, loaded.full, dim) or ())
        repeated = loaded.code is Code.SHARD_ORDER and len(set(rows)) < len(set(due or rows))
        code = Code.WRONG_PLACEMENT if repeated else loaded.code
        cause = LoadedRows(loaded.name, loaded.rank, dim, tuple(rows), repeated, due)
        return Diagnosis(code, cause)
    return None


def _other_integers(facts: Facts, loaded: Loaded) -> Diagnosis:
    """Of integers and bools: another rank's, or none of the checkpoint's. Many are alike, so that a
    row is found in a tensor by chance."""
    name, rank = loaded.name, loaded.rank
    if len(loaded.full.unique()) == loaded.full.numel() and (rows := _other_rows(loaded)):
        return rows
    entry = facts.posed.params[name]
    parts = {r: take(loaded.full, entry, case=facts.case, rank=r) for r in sorted(facts.dumps)}
    whose = [r for r, part in parts.items() if torch.equal(part, loaded.got)]
    if whose and len(loaded.got.unique()) > 1:
        return Diagnosis(Code.SHARD_ORDER, LoadedIntegers(name, rank, whose[0]))
    return Diagnosis(Code.UNWRITTEN_MEMORY, LoadedIntegers(name, rank))


def _other_elements(loaded: Loaded) -> Diagnosis | None:
    known = set(loaded.full.flatten().tolist())
    if loaded.full.ndim < 2 or not set(loaded.got.flatten().tolist()) <= known:
        return None
    return Diagnosis(Code.WRONG_PLACEMENT, LoadedElements(loaded.name, loaded.rank))


def _of_another(facts: Facts, loaded: Loaded) -> Diagnosis | None:
    full, params = loaded.full, facts.posed.problems[0].params
    others = {n: t.double() for n, t in params.items() if t.ndim == full.ndim}
    others = {n: t for n, t in others.items() if t.shape[1:] == full.shape[1:]}
    rows = _rows_of(loaded.got, torch.cat([*others.values()]), 0)
    if rows is None:
        return None
    whose = [name for name, t in others.items() for _ in range(len(t))]
    of = tuple(dict.fromkeys(whose[row] for row in rows))
    return Diagnosis(loaded.code, LoadedAnother(loaded.name, loaded.rank, of))


def _scaled(loaded: Loaded) -> Diagnosis | None:
    """As often as there were replicas, where something adds them up. One number is some multiple
    of any other."""
    factor = _factor(loaded.got, loaded.want)
    if factor is None or not loaded.want.any():
        return None
    summed = factor > 1.5 and abs(factor - round(factor)) < ROUNDED
    if not summed and loaded.want.numel() < 2:
        return None
    code = Code.SUMMED_TWICE if summed else Code.UNCLASSIFIED
    return Diagnosis(code, LoadedScaled(loaded.name, loaded.rank, factor))


def _apart(facts: Facts, loaded: Loaded) -> Diagnosis | None:
    if loaded.got.shape != loaded.full.shape or _same_on_all(facts, loaded):
        return None
    return Diagnosis(Code.REPLICAS_DIFFER, LoadedApart(loaded.name, loaded.rank))


def _same_on_all(facts: Facts, loaded: Loaded) -> bool:
    key = Key(Shelf.LOADED, loaded.name)
    held = [dump[key] for dump in facts.dumps.values() if key in dump]
    return all(torch.equal(t, held[0]) for t in held)


def _rows_of(got: Tensor, full: Tensor, dim: int) -> list[int] | None:
    """Which row of `full` along `dim` each row of `got` is, to the bit; None if one is none."""
    pool = full.movedim(dim, 0).reshape(full.shape[dim], -1)
    rows = got.movedim(dim, 0).reshape(got.shape[dim], -1)
    if rows.shape[1] != pool.shape[1]:
        return None
    hits = [(row == pool).all(1).nonzero().flatten().tolist() for row in rows]
    return [h[0] for h in hits] if all(hits) else None
