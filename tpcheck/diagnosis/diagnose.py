"""From evidence to a named cause: hypotheses are tested against the ranks' tensors.

Each hypothesis is a statement that the data can refute (does actual × 1/R fit? does the sum over
the ranks fit? is it another rank's slice?). The first that fits, in order of how specific it is,
names the cause; `unclassified` says that none did.
"""

from __future__ import annotations

from tpcheck import order
from tpcheck.diagnosis.evidence import ORDER, Facts, pass_of
from tpcheck.diagnosis.hypotheses import by_values
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch

CODES = {
    "missing-all-reduce": "a sum over the ranks, or what they should exchange for it, is missing",
    "summed-twice": "something is summed over the ranks more often than it should be",
    "averaged-not-summed": "a mean over the ranks stands where a sum belongs",
    "partial-not-reduced": "a gradient holds only this rank's part of the sum",
    "replicas-differ": "ranks that must hold the same tensor hold different ones",
    "shard-order": "pieces are in the wrong order, or from the wrong rank",
    "kv-head-map": "query heads meet the wrong K/V head",
    "bias-per-rank": "a bias is added on every rank before the sum, or on some ranks only",
    "gradient-dropped": "a gradient does not arrive",
    "wrong-group": "a collective runs over the wrong group of ranks",
    "vocab-mask": "tokens at the border of a rank's vocabulary range go wrong",
    "rng-not-coordinated": "random masks agree where they must differ, or differ where not",
    "scale-not-shared": "a scale is computed from one shard where the whole is meant",
    "precision-loss": "the computation is right, but in too low a precision",
    "unwritten-memory": "a buffer is read where nobody wrote it",
    "stale-buffer": "a buffer is read too early, or was overwritten",
    "plan-entry-unmatched": "names of the plan or the reference match nothing in the candidate",
    "parameter-not-sharded": "a parameter that should be sharded is held whole",
    "wrong-placement": "a tensor is split along another dim, or not as the layout says",
    "extra-communication": "more is communicated than the budget allows",
    "collective-mismatch": "ranks entered different collectives",
    "deadlock": "ranks wait for one another",
    "rank-crash": "a rank raised, or died",
    "order-of-parallelisms": "parallelisms were applied in an order that breaks one of them",
    "tied-weights-split": "weights that are tied were split apart",
    "unclassified": "none of the known causes fits",
}


def first_divergence(result: CaseResult) -> str | None:
    """The first tensor to go wrong, in the order in which they are computed; where none did, the
    module of the collective that a rank refused to enter."""
    values = [m for m in result.mismatches if m.kind in ORDER]
    if not values:
        refused = [m.detail for m in result.mismatches if m.detail.get("module")]
        return f"{refused[0]['module']} ({refused[0]['phase']})" if refused else None
    first = min(values, key=lambda m: (pass_of(m), ORDER.index(m.kind)))
    phase = {"output": "forward", "loss": "forward", "param": "after the step"}
    return f"{first.tensor} ({phase.get(first.kind, 'backward')})"


def diagnose(facts: Facts) -> Diagnosis:
    """The most specific cause that fits the evidence."""
    return _structural(facts) or by_values(facts) or _fallback(facts)


# ---- what needs no values


def _structural(facts: Facts) -> Diagnosis | None:
    causes = [m for m in facts.found.mismatches if not m.detail.get("consequence")]
    by_kind: dict[str, list[Mismatch]] = {}
    for mismatch in causes:
        by_kind.setdefault(mismatch.kind, []).append(mismatch)
    if "crash" in by_kind:
        first = by_kind["crash"][0]
        how = first.detail.get("reason", "gone")
        return Diagnosis(
            "rank-crash", f"rank {first.rank} died: {how}", {"rank": first.rank, "how": how}
        )
    if "sharding" in by_kind:  # a rank that can't load its shard leaves its peers waiting
        return _sharding(by_kind["sharding"])
    if "communication_bytes" in by_kind:
        return _communication(by_kind["communication_bytes"])
    if "saved_bytes" in by_kind:
        reason = by_kind["saved_bytes"][0].detail["reason"]
        return Diagnosis("unclassified", f"saved for backward: {reason}")
    if "collective" in by_kind:
        first = by_kind["collective"][0]
        if "witness" in first.detail:
            return Diagnosis("unclassified", f"the path was not taken: {first.detail['reason']}")
        reason = first.detail.get("reason", "the ranks' sequences of collectives differ")
        if "expected_dtype" in first.detail:
            return Diagnosis("precision-loss", reason, dict(first.detail))
        return Diagnosis("collective-mismatch", reason, {"rank": first.rank})
    if "hang" in by_kind:
        return _hang(by_kind["hang"])
    if "exception" in by_kind:
        return _exception(facts, by_kind["exception"])
    return None


def _communication(found: list[Mismatch]) -> Diagnosis:
    first = found[0]
    ran = ", ".join(f"{count} × {op}" for op, count in first.detail["ran"].items())
    message = (
        f"{first.detail['phase']} sends {first.actual:g} elements a rank, the budget is "
        f"{first.expected:g} ({ran} in {first.detail['passes']} microbatches)"
    )
    return Diagnosis("extra-communication", message, dict(first.detail))


def _hang(found: list[Mismatch]) -> Diagnosis:
    first = found[0]
    reason = str(first.detail.get("reason", ""))
    code = "collective-mismatch" if "finished without" in reason else "deadlock"
    waiting = {str(m.rank): (m.detail.get("last") or ["nothing"])[-1] for m in found}
    message = f"rank {first.rank} {reason}: {(first.detail.get('last') or ['?'])[-1]}"
    return Diagnosis(code, message, {"waiting_in": waiting})


def _exception(facts: Facts, found: list[Mismatch]) -> Diagnosis:
    first = found[0]
    ranks = sorted(m.rank for m in found)
    who = "every rank" if len(ranks) == facts.case.world_size else f"rank {ranks[0]}"
    what = f"{first.detail.get('type')}: {first.detail.get('reason')}"
    message = f"{who} raised {what} (in {first.detail.get('phase')})"
    row = order.refused(str(first.detail.get("reason")))
    if row and first.detail.get("phase") == "build":
        return Diagnosis(order.CODE, f"{row}: {message}", {"ranks": ranks, "row": row})
    return Diagnosis("rank-crash", message, {"ranks": ranks})


def _sharding(found: list[Mismatch]) -> Diagnosis:
    codes = {
        "whole": "parameter-not-sharded",
        "storage": "parameter-not-sharded",
        "none": "parameter-not-sharded",
        "shape": "wrong-placement",
        "placement": "wrong-placement",
        "elsewhere": "wrong-placement",
        "missing": "plan-entry-unmatched",
        "unexpected": "plan-entry-unmatched",
    }
    first = found[0]
    if first.detail["fault"] == "missing":  # on this rank; perhaps others have it
        others = {m.tensor: m for m in found if m.detail["fault"] == "elsewhere"}
        lost = (m for m in found if m.detail["fault"] == "missing" and m.tensor not in others)
        first = next(lost, None) or others[first.tensor]
    fault = str(first.detail["fault"])
    if fault == "plan":
        names = list(dict.fromkeys(name for m in found for name in m.detail.get("names", ())))
        return Diagnosis(first.detail["code"], first.detail["reason"], {"tensors": names})
    names = sorted({m.tensor for m in found})
    has, wants = first.detail.get("shape"), first.detail.get("expected_shape")
    held = f"along {first.detail['axes']}" if "axes" in first.detail else f"{has}"
    part = "" if "axes" in first.detail else f" {wants}"
    message = {
        "whole": f"{', '.join(names)}: held whole {held}, the layout shards it{part}",
        "storage": f"{', '.join(names)}: a view of the whole tensor, which stays in memory",
        "shape": f"{names[0]} has the local shape {has}, the layout says {wants}",
        "placement": f"{names[0]}: {first.detail.get('placement')} is not the layout's "
        f"{first.detail.get('expected_placement')}",
    }.get(fault, str(first.detail.get("reason")))
    return Diagnosis(codes[fault], message, {"tensors": names})


def _fallback(facts: Facts) -> Diagnosis:
    first = next(iter(facts.found.mismatches), None)
    if first is None:
        return Diagnosis("unclassified", "no mismatch was left to explain")
    where = f"{first.kind} {first.tensor}"
    return Diagnosis("unclassified", f"{where} is wrong; none of the known causes fits", {})
