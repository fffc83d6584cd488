"""Hypotheses about wrong values: each one a statement that the ranks' tensors can refute.

`by_values` tries them on the tensor at the border of the module where it starts, where that is
known, and on the tensors that went wrong first; the most specific ones first.

`tensor` asks the wrong tensor alone, `several` other tensors of the case and the trace, `altered`
the reference under other inputs and cotangents, `microbatches` the reference of some of them or in
another order, `reruns` the candidate in another case.
"""

from __future__ import annotations

from collections.abc import Callable

from tpcheck.diagnosis.evidence import ORDER, Facts, Local, gather, order_of
from tpcheck.diagnosis.hypotheses import altered, microbatches, reruns, several, tensor
from tpcheck.verdict import Diagnosis, Mismatch


def by_values(facts: Facts) -> Diagnosis | None:
    """The cause of the first wrong tensors: of the outputs where any is wrong, since what comes
    after follows from them, else of the gradients."""
    values = sorted((m for m in facts.found.mismatches if m.kind in ORDER), key=order_of)
    if not values:
        return None
    # an output after the step follows from the gradients
    forward = [m for m in values if m.kind in ("output", "loss") and "@step" not in m.tensor]
    first = forward or values
    at_once = (
        several.loaded(facts)
        or reruns.changes(facts)
        or next(filter(None, map(_obvious, first)), None)
    )
    if at_once is not None:
        return at_once
    exact = reruns.right_in_float64(facts)
    if exact and reruns.rounding_only(facts, first):
        return reruns.precision_loss(facts, first)
    named = (
        (_first_that_fits(facts, facts.inside) if facts.inside is not None else None)
        or next(filter(None, (_tested(facts, m) for m in _each_once(facts, first))), None)
        or several.common_factor(facts)
        or _replicas(values)
    )
    named = reruns.not_between_ranks(facts, first, named) or named
    return reruns.in_this_dtype(facts, first, named) if exact else named


def _replicas(values: list[Mismatch]) -> Diagnosis | None:
    if any(m.kind != "replica" for m in values):
        return None
    first = values[0]
    message = f"{first.tensor}: ranks {first.detail['ranks']} hold different bits"
    return Diagnosis("replicas-differ", message, dict(first.detail))


def _each_once(facts: Facts, found: list[Mismatch]) -> list[Mismatch]:
    """The first mismatch of each tensor and dp coordinate: it is tested on all its ranks."""
    seen: dict[tuple[str, str, int], Mismatch] = {}
    for m in found:
        seen.setdefault((m.kind, m.tensor, facts.case.coordinates(m.rank).get("dp", 0)), m)
    return list(seen.values())


def _tested(facts: Facts, mismatch: Mismatch) -> Diagnosis | None:
    local = gather(facts, mismatch)
    return None if local is None else _first_that_fits(facts, local)


def _first_that_fits(facts: Facts, local: Local) -> Diagnosis | None:
    if not local.wrong():
        return None
    return next(filter(None, (test(facts, local) for test in _HYPOTHESES)), None)


def _obvious(mismatch: Mismatch) -> Diagnosis | None:
    detail, name = mismatch.detail, f"{mismatch.kind} {mismatch.tensor}"
    if "reason" in detail and "None" in str(detail["reason"]):
        message = f"{name}: no gradient (None) on rank {mismatch.rank}"
        return Diagnosis("gradient-dropped", message, {"rank": mismatch.rank})
    if "returned" in detail:
        returned = ", ".join(detail["returned"]) or "nothing that is a tensor"
        wanted = ", ".join(detail["wanted"])
        message = f"the candidate returns {returned}, the reference {wanted}"
        return Diagnosis("plan-entry-unmatched", message, dict(detail))
    if "elsewhere" in detail:
        return Diagnosis("wrong-placement", f"{name} {detail['elsewhere']}", dict(detail))
    if "shape" in detail:
        message = f"{name}: shape {detail['shape']}, expected {detail['expected_shape']}"
        return Diagnosis("wrong-placement", message, dict(detail))
    if detail.get("nan"):
        message = (
            f"{name}: {detail['nan']} elements are NaN: memory that nobody wrote, unless "
            "arithmetic made them (an overflow, 0/0)"
        )
        return Diagnosis("unwritten-memory", message, {"nan": detail["nan"]})
    if "dtype" in detail:
        message = f"{name} is {detail['dtype']}, expected {detail['expected_dtype']}"
        return Diagnosis("precision-loss", message, dict(detail))
    return None


_HYPOTHESES: tuple[Callable[[Facts, Local], Diagnosis | None], ...] = (
    several.overwritten,
    tensor.bias,
    several.over_dp,
    several.other_data_group,
    tensor.scaled,
    tensor.summed,
    several.tied,
    microbatches.reordered,
    tensor.later_pass_only,
    tensor.sum_of_pieces,
    microbatches.accumulated,
    several.residual,
    several.partial_branch,
    altered.own_terms_only,
    tensor.lookups,
    altered.regathered,
    altered.some_terms_only,
    reruns.heads,
    tensor.other_rank,
    tensor.permuted,
    tensor.zero,
    tensor.one_rank_scaled,
    reruns.only_with_dp,
    altered.own_part_only,
    tensor.low_precision,
    several.missing_collective,
    altered.exchanged_pieces,
    altered.mixed_rows,
)
