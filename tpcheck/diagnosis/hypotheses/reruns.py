"""Hypotheses that are tested by running another case, or the same one again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.noise import UNIT_ROUNDOFF
from tpcheck.diagnosis.evidence import Facts, Local, gather, name_of
from tpcheck.oracle.pose import pose
from tpcheck.placement import Heads, by_axis
from tpcheck.tensors.draw import Draw, state
from tpcheck.verdict import Diagnosis, Mismatch

# A value that passes through bfloat16, the coarsest dtype in which sums are sent, is off by at most
# u = 2^-8 of itself, and terms that are rounded before the sum and their sum after it by 2u of the
# terms. A factor, a missing term or a term too many is of the size of the terms themselves.
ROUNDINGS = 2 * UNIT_ROUNDOFF[torch.bfloat16]

# Evidence of causes in which R stands as a number: what fits R = 2 fits any 2.
_COINCIDENCES = {"factor", "branch", "tensor", "mixed"}


def only_with_dp(facts: Facts, local: Local) -> Diagnosis | None:
    """The same case without the dp axis is right."""
    if facts.case.dp < 2:
        return None
    alone = facts.rerun(replace(facts.case, mesh={"tp": facts.case.tp}))
    if alone is not None and not alone.mismatches:
        message = (
            f"{name_of(local)} is wrong on a {facts.case.dp} × {facts.case.tp} mesh and right on "
            f"tp={facts.case.tp} alone: a collective runs over the wrong group"
        )
        return Diagnosis("wrong-group", message, {"mesh": dict(facts.case.mesh)})
    return None


def not_between_ranks(
    facts: Facts, first: list[Mismatch], named: Diagnosis | None
) -> Diagnosis | None:
    """The same tensor is wrong where one rank computes all of it, in one microbatch: what `named`
    says is done between ranks is not the cause. A factor of 2 at tp=2 may be just a factor of 2.
    None where that is not so, or where `named` says what no other number explains: the sum of what
    the ranks hold is the reference by no accident."""
    if named is not None and not _COINCIDENCES & set(named.evidence):
        return None
    alone = replace(facts.case, mesh={"tp": 1}, microbatches=1)
    requires = facts.spec.requires if facts.spec else None
    if facts.case.world_size == 1 or (requires and requires(alone)):
        return None
    result = facts.rerun(alone)
    # values alone count: a case that has no meaning on one rank gives another shape, or raises
    valued = [m for m in result.mismatches if m.error is not None] if result else []
    wrong = {(m.kind, _base(m)) for m in valued}
    if not any((m.kind, _base(m)) in wrong for m in first):
        return None
    message = (
        f"{first[0].kind} {first[0].tensor} is wrong at tp=1, too, where no rank exchanges "
        "anything with another: the arithmetic is not the reference's"
    )
    evidence: dict[str, Any] = {"refuted": named.code if named else None}
    if named is not None and "factor" in named.evidence:
        evidence["factor"] = named.evidence["factor"]
        message += f" ({evidence['factor']:g} × it)"
    return Diagnosis("unclassified", message, evidence)


def _base(mismatch: Mismatch) -> str:
    return mismatch.tensor.partition("@")[0]


def right_in_float64(facts: Facts) -> bool:
    """Whether the same case in float64 is right."""
    if facts.case.dtype == "float64":
        return False
    exact = facts.rerun(replace(facts.case, dtype="float64"))
    return exact is not None and not exact.mismatches


def rounding_only(facts: Facts, first: list[Mismatch]) -> bool:
    """Whether every error is as small as roundings make it: a share of `ROUNDINGS` of the terms.

    σ is what roundings of relative size u move a value by, so that σ / u is the size of the terms
    behind it, also where they cancel.
    """
    return all(_error(facts, m) <= ROUNDINGS * _terms(facts, m) for m in first)


def _error(facts: Facts, mismatch: Mismatch) -> float:
    local = gather(facts, mismatch)
    if local is None:  # slices that can't be laid side by side: the element that was reported
        return math.inf if mismatch.error is None else mismatch.error
    return max(float((local.actual[r] - local.expected[r]).abs().max()) for r in local.ranks)


def _terms(facts: Facts, mismatch: Mismatch) -> float:
    target = facts.target(mismatch, facts.case.coordinates(mismatch.rank).get("dp", 0))
    if target is None:
        return 0.0
    sigma = target.spread.sigma
    sigma = sigma[sigma.isfinite()]
    u = UNIT_ROUNDOFF[getattr(torch, facts.case.dtype)]
    terms = float(sigma.max()) / u if sigma.numel() else 0.0
    return max(terms, float(target.value.abs().nan_to_num(posinf=0.0).max()))


def precision_loss(facts: Facts, first: list[Mismatch]) -> Diagnosis:
    """Only precision is lost: right in float64, and off by no more than a coarser dtype rounds.
    Asked before any other cause: whatever else fits in fewer bits would fit there, too."""
    worst = max((m.error or 0) / (m.bound or 1) for m in facts.found.mismatches)
    message = (
        f"{first[0].kind} {first[0].tensor} is right in float64 and off by {worst:.3g} × its "
        "bound here, which is no more than a coarser dtype rounds"
    )
    return Diagnosis("precision-loss", message, {"error_over_bound": worst})


def in_this_dtype(facts: Facts, first: list[Mismatch], named: Diagnosis | None) -> Diagnosis:
    """The cause, or that none fits, with the dtype that it needs: the path taken depends on it."""
    dtype = facts.case.dtype
    if named is None:
        message = (
            f"{first[0].kind} {first[0].tensor} is wrong in {dtype} and right in float64, by more "
            "than a coarser dtype rounds; none of the known causes fits"
        )
        return Diagnosis("unclassified", message, {"only_in": dtype})
    message = f"{named.message}; so in {dtype}, right in float64"
    return Diagnosis(named.code, message, named.evidence | {"only_in": dtype})


def changes(facts: Facts) -> Diagnosis | None:
    """The same case gave other values the second time."""
    for mismatch in facts.found.mismatches:
        again = facts.dumps.get(mismatch.rank, {}).get(f"{mismatch.kind}/{mismatch.tensor}")
        if again is None or mismatch.index is None or mismatch.actual is None:
            continue
        first, second = mismatch.actual, float(again[mismatch.index].double())
        if first != second and not (math.isnan(first) and math.isnan(second)):
            what = f"{mismatch.kind} {mismatch.tensor} {list(mismatch.index)}"
            message = f"{what} was {first:.6g} and, run again, {second:.6g}: read too early"
            return Diagnosis("stale-buffer", message, {"first": first, "second": second})
    return None


def heads(facts: Facts, local: Local) -> Diagnosis | None:
    """With as many K/V heads as query heads the case is right: their map is wrong."""
    dims = facts.case.dims
    if local.target.kind != "output":
        return None
    if "kv_heads" not in dims or "heads" not in dims or dims["heads"] == dims["kv_heads"]:
        return None
    other = facts.rerun(replace(facts.case, dims={**dims, "kv_heads": dims["heads"]}))
    if other is not None and not other.mismatches and not _wrong_with_equal_kv_heads(facts):
        message = (
            f"{name_of(local)} is wrong with {dims['heads']} query, {dims['kv_heads']} K/V heads "
            f"and right with {dims['heads']} of each"
        )
        return Diagnosis("kv-head-map", message, {"heads": dims["heads"], "kv": dims["kv_heads"]})
    return None


def _wrong_with_equal_kv_heads(facts: Facts) -> bool:
    """Whether an output is wrong also where all K/V heads have the same weights, so that it does
    not matter which of them a query head meets; False where that can't be asked."""
    spec, heads = facts.spec, facts.case["kv_heads"]
    cut = {
        name: own.dim
        for name, entry in facts.posed.params.items()
        for own in by_axis(entry).values()
        if isinstance(own, Heads) and own.heads == heads
    }
    if spec is None or facts.execute is None or not cut:
        return False

    def first_head(name: str, shape: tuple[int, ...], draw: Draw) -> Tensor | None:
        given = spec.init(name, shape, draw) if spec.init else None
        if name not in cut:
            return given
        if given is None:
            given = state(draw, name, torch.empty(shape), buffer=False)
        dim = cut[name]
        first = given.narrow(dim, 0, shape[dim] // heads)
        return torch.cat([first] * heads, dim)

    once = replace(facts.case, microbatches=1, step=False)
    result = facts.execute(pose(replace(spec, init=first_head), once))
    return any(m.kind == "output" for m in result.mismatches)
