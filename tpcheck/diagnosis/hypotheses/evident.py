"""Causes that one mismatch says by itself, without another tensor or run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tpcheck.causes.evident import (
    BitsDiffer,
    HoldsNaN,
    NoGradient,
    NotTaken,
    OnOtherRanks,
    OtherDtype,
    OtherPlacement,
    OtherShape,
    OutputsNamedOtherwise,
)
from tpcheck.causes.steps import NoState
from tpcheck.diagnosis.facts import Facts, subject_of, values
from tpcheck.evidence import Absent, Elsewhere, PlacedOtherwise, ReplicasDiffer, Values, WrongShape
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Kind


def evident(mismatch: Mismatch) -> Diagnosis | None:
    """No gradient, another name, place, shape or dtype, or NaN."""
    detail, subject = mismatch.detail, subject_of(mismatch)
    match detail:
        case Absent(returned=tuple(returned), wanted=tuple(wanted)):
            cause = OutputsNamedOtherwise(returned, wanted)
            return Diagnosis(Code.PLAN_ENTRY_UNMATCHED, cause)
        case Absent() if mismatch.kind.is_gradient:
            return Diagnosis(Code.GRADIENT_DROPPED, NoGradient(subject, mismatch.rank))
        case Absent() if mismatch.kind is Kind.OPTIMIZER_STATE:
            return Diagnosis(Code.GRADIENT_DROPPED, NoState(subject, mismatch.rank))
        case Elsewhere():
            return Diagnosis(Code.WRONG_PLACEMENT, OnOtherRanks(subject, detail))
        case PlacedOtherwise(placement, wanted):
            return Diagnosis(Code.WRONG_PLACEMENT, OtherPlacement(subject, placement, wanted))
        case WrongShape(shape, due):
            return Diagnosis(Code.WRONG_PLACEMENT, OtherShape(subject, shape, due))
        case Values(nan=int(nan)) if nan:
            return Diagnosis(Code.UNWRITTEN_MEMORY, HoldsNaN(subject, nan))
        case Values(dtype=str(own)):
            floats = getattr(torch, own).is_floating_point
            code = Code.PRECISION_LOSS if floats else Code.UNCLASSIFIED
            return Diagnosis(code, OtherDtype(subject, detail))
    return None


def not_taken(facts: Facts) -> Diagnosis | None:
    """The first tensor to be wrong is a gradient that the reference does not take."""
    targets = (target for problem in facts.posed.problems for target in problem.targets)
    untaken = {(target.kind, target.name) for target in targets if target.unused}
    for wrong in values(facts.result)[:1]:
        if (wrong.kind, wrong.tensor) in untaken:
            return Diagnosis(Code.UNCLASSIFIED, NotTaken(subject_of(wrong)))
    return None


def replicas(wrong: Sequence[Mismatch]) -> Diagnosis | None:
    """Nothing but bits of replicas differ."""
    if any(m.kind is not Kind.REPLICA for m in wrong):
        return None
    name, detail = wrong[0].tensor, wrong[0].detail
    assert isinstance(detail, ReplicasDiffer), wrong[0]
    cause = BitsDiffer(name, detail.of, detail.ranks, detail.differ_from_first)
    return Diagnosis(Code.REPLICAS_DIFFER, cause)
