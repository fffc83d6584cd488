"""Hypotheses that are tested by running another case, or the same one again."""

from __future__ import annotations

import math
from dataclasses import replace

from tpcheck.facts import ORDER, Facts, Local, name_of, order_of
from tpcheck.verdict import Diagnosis


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


def right_in_float64(facts: Facts) -> Diagnosis | None:
    """The same case in float64 is right: only precision is lost. Asked before any other cause of
    wrong numbers: whatever else fits in fewer bits would fit there, too."""
    if facts.case.dtype == "float64":
        return None
    exact = facts.rerun(replace(facts.case, dtype="float64"))
    if exact is None or exact.mismatches:
        return None
    worst = max((m.error or 0) / (m.bound or 1) for m in facts.found.mismatches)
    first = min((m for m in facts.found.mismatches if m.kind in ORDER), key=order_of)
    message = (
        f"{first.kind} {first.tensor} is right in float64 and off by {worst:.3g} × its bound here"
    )
    return Diagnosis("precision-loss", message, {"error_over_bound": worst})


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
    if other is not None and not other.mismatches:
        message = (
            f"{name_of(local)} is wrong with {dims['heads']} query, {dims['kv_heads']} K/V heads "
            f"and right with {dims['heads']} of each"
        )
        return Diagnosis("kv-head-map", message, {"heads": dims["heads"], "kv": dims["kv_heads"]})
    return None
