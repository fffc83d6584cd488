"""Failures that start in no module's forward or backward: before the first forward, where the
candidate loads; after backward, in `finalize`, in clipping, in an optimizer's step. The module at
which such a failure shows first is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from tpcheck.causes import Cause, bare
from tpcheck.causes.steps import NotZeroed
from tpcheck.causes.where import (
    AfterGradients,
    AtFinalize,
    BeforeForward,
    Early,
    FirstSeen,
    LeftInGradient,
    Unfinished,
)
from tpcheck.diagnosis.facts import Facts, Local, gather, values
from tpcheck.diagnosis.hypotheses import loaded
from tpcheck.diagnosis.hypotheses.steps import is_buffer
from tpcheck.diagnosis.localise import Place
from tpcheck.evidence import Misheld, NotAsSaved
from tpcheck.tensors.names import STEP, Key, Shelf
from tpcheck.tensors.terms import has_terms
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind

#: What comes after the gradients of a step.
_AFTER = (Kind.GRAD_NORM, Kind.OPTIMIZER_STATE, Kind.PARAM)


def outside(facts: Facts, place: Place | None, cause: Cause, *, loads: bool) -> FirstSeen | None:
    """Where it is seen first, where the ranks' tensors say that this is in no module.

    Args:
        place: the module at whose boundary, or in whose parameter, it shows first.
        cause: what was diagnosed.
        loads: whether the candidate has a loader of its own.
    """
    if (before := _before_forward(facts, loads)) is not None:
        return before
    if any(m.kind is Kind.MASK for m in facts.result.mismatches):
        return None
    inner = bare(cause)
    if isinstance(inner, NotZeroed):
        return LeftInGradient(inner.subject.name)
    wrong = values(facts.result)
    of_step = [m for m in wrong if m.name.at.step == wrong[0].name.at.step]
    early = [m for m in of_step if _is_of_passes(m)]
    if wrong and not early:
        return _after_gradients(facts, wrong[0])
    seen_inside = place is not None and place.border is not None
    if facts.spec is None or facts.spec.finalize is None or seen_inside:
        return None
    return _by_finalize(facts, early) if all(map(_is_of_parameter, early)) else None


def _before_forward(facts: Facts, loads: bool) -> BeforeForward | None:
    for mismatch in facts.result.mismatches:
        held = mismatch.detail
        # what a gradient, a state or an attribute keeps is seen later, and reads are no tensor
        if isinstance(held, Misheld) and held.what is None and held.fault is not Fault.READ:
            return BeforeForward(mismatch.tensor, Early.HELD)
        if isinstance(held, NotAsSaved):
            return BeforeForward(mismatch.tensor, Early.LOADED)
    for found in loaded.wrong(facts):
        if (computed := found.name in facts.posed.computed) or loads:
            return BeforeForward(found.name, Early.COMPUTED if computed else Early.LOADED)
    return None


def _is_of_passes(mismatch: Mismatch) -> bool:
    """Whether it is what a forward or a backward leaves, before any step."""
    kind = mismatch.of
    return kind.is_gradient or (kind.is_output and mismatch.name.at != STEP)


def _is_of_parameter(mismatch: Mismatch) -> bool:
    return mismatch.of is Kind.PARAM_GRAD


def _after_gradients(facts: Facts, first: Mismatch) -> AfterGradients | None:
    kind = first.of
    if kind not in _AFTER:
        return None
    clipped = bool(facts.posed.problems[0].most)
    return AfterGradients(first.tensor, kind, clipped, is_buffer(facts, kind, first.tensor))


def _by_finalize(facts: Facts, wrong: Sequence[Mismatch]) -> AtFinalize | None:
    """Of gradients that are wrong, what backward had left of the first, where that of no other
    was wrong by itself."""
    seen: list[AtFinalize] = []
    for mismatch in wrong:
        if mismatch.kind is Kind.REPLICA:
            continue
        local = gather(facts, mismatch)
        before = None if local is None else _unfinished(facts, local)
        if before is None:
            return None
        seen.append(AtFinalize(mismatch.tensor, before))
    return next((s for s in seen if s.before is Unfinished.UNKNOWN), seen[0] if seen else None)


def _unfinished(facts: Facts, local: Local) -> Unfinished | None:
    """What backward had left of a gradient; None where that is wrong, and `finalize` does not touch
    it: backward's fault, or what it needs is summed by the harness."""
    if has_terms(local.target.entry):
        return None
    key = Key(Shelf.UNFINISHED, local.target.name)
    kept = {r: facts.dumps[r][key].double() for r in local.ranks if key in facts.dumps[r]}
    fits = all(r in kept and kept[r].shape == local.expected[r].shape for r in local.ranks)
    if not fits:
        return Unfinished.UNKNOWN
    before = replace(local, actual=kept)
    changed = any(not torch.equal(kept[r], local.actual[r]) for r in local.ranks)
    if not before.wrong():
        return Unfinished.RIGHT if changed else None
    total = torch.stack([*kept.values()]).sum(0) if before.alike() else None
    if (total is not None and before.fits(total, local.ranks[0])) or _adds_up_over_dp(
        facts, before, key
    ):
        return Unfinished.TERMS if changed else Unfinished.LEFT
    return Unfinished.UNKNOWN if changed else None


def _adds_up_over_dp(facts: Facts, before: Local, key: Key) -> bool:
    """Whether what backward had left on the ranks of all dp coordinates is, summed or averaged as
    the spec says, the gradient that they share."""
    case, spec = facts.case, facts.spec
    if not facts.posed.shared or case.dp == 1 or spec is None:
        return False
    times = 1 / case.dp if spec.dp_gradients == "mean" else 1.0
    for rank in before.ranks:
        at = {**case.coordinates(rank), "dp": None}
        peers = [r for r in range(case.world_size) if {**case.coordinates(r), "dp": None} == at]
        if not all(key in facts.dumps.get(r, {}) for r in peers):
            return False
        each = [facts.dumps[r][key].double() for r in peers]
        if any(one.shape != each[0].shape for one in each):
            return False
        if not before.fits(times * torch.stack(each).sum(0), rank):
            return False
    return True
