"""From evidence to a named cause: hypotheses are tested against the ranks' tensors.

Each hypothesis is a statement that the data can refute (does actual × 1/R fit? does the sum over
the ranks fit? is it another rank's slice?). The first that fits, in order of how specific it is,
names the cause; `unclassified` says that none did.
"""

from __future__ import annotations

from dataclasses import replace

from tpcheck.causes import InAnyDtype, WhileSaving
from tpcheck.causes.structure import NothingKnown
from tpcheck.causes.where import AfterGradients, AtCollective, AtTensor
from tpcheck.diagnosis.facts import Facts, subject_of, values
from tpcheck.diagnosis.hypotheses.evident import not_taken
from tpcheck.diagnosis.hypotheses.precedence import by_values
from tpcheck.diagnosis.hypotheses.reruns import in_this_mode, when_saved_so
from tpcheck.diagnosis.structure import by_structure
from tpcheck.evidence import NotAsSaved
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Kind, Phase


def diagnose(facts: Facts) -> Diagnosis:
    """The most specific cause that fits the evidence."""
    structural, saver = by_structure(facts.result), facts.result.saving
    if structural is not None and saver is not None:
        assert isinstance(structural.cause, InAnyDtype), structural
        return replace(structural, cause=WhileSaving(structural.cause, saver.tp))
    named = by_values(facts)
    if named is None or named.code is Code.UNCLASSIFIED:
        named = not_taken(facts) or named or _nothing_known(facts.result)
    return structural or when_saved_so(facts, in_this_mode(facts, named))


def first_divergence(result: CaseResult) -> AtTensor | AtCollective | AfterGradients | None:
    """The first tensor to go wrong, in the order in which they are computed; where none did, the
    module of the collective that a rank refused to enter."""
    drawn = [m for m in result.mismatches if m.kind is Kind.MASK]
    for mismatch in [*drawn, *values(result)]:
        gradients = any(m.of.is_gradient for m in result.mismatches)
        if mismatch.kind is Kind.GRAD_NORM and not gradients:
            return AfterGradients(mismatch.tensor, mismatch.kind)
        return AtTensor(mismatch.tensor, _phase(mismatch))
    scenes = (m.scene for m in result.mismatches)
    return next((AtCollective(s.module, s.phase) for s in scenes if s.module), None)


def _phase(mismatch: Mismatch) -> Phase:
    kind = mismatch.of
    if kind.is_output or kind is Kind.MASK:
        return Phase.FORWARD
    if isinstance(mismatch.detail, NotAsSaved):
        return Phase.LOAD
    after = kind in (Kind.PARAM, Kind.OPTIMIZER_STATE)
    return Phase.STEP if after else Phase.BACKWARD


def _nothing_known(result: CaseResult) -> Diagnosis:
    subject = next(map(subject_of, result.mismatches), None)
    return Diagnosis(Code.UNCLASSIFIED, NothingKnown(subject))
