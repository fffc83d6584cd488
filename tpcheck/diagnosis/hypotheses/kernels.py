"""Causes that only kernels have, which are given tensors in every memory format."""

from __future__ import annotations

from dataclasses import replace

from tpcheck.causes.reruns import (
    RightForAllGradients,
    RightForOnes,
    RightInAnotherConfiguration,
    RightWhenApart,
    RightWhenContiguous,
    RightWhenFinite,
)
from tpcheck.causes.where import Subject
from tpcheck.diagnosis.facts import Facts, subject_of, values
from tpcheck.diagnosis.hypotheses import reruns, rounding
from tpcheck.diagnosis.structure import goes_by_address
from tpcheck.evidence import Unkept, Values, Wrapped
from tpcheck.oracle.pose import Posed, pose
from tpcheck.verdict import Diagnosis, Mismatch, Verdict
from tpcheck.vocabulary import Code, Kind


def of_kernels(facts: Facts) -> Diagnosis | None:
    """What a wrong value, or an access outside of all tensors, has to do with how tensors are given
    to the kernel: it is right where they are given otherwise. Where the very case is right by now,
    as of what is wrong in the first call of a size, that is not why."""
    found = _given_otherwise(facts)
    if found is None or facts.execute is None:
        return found
    return None if facts.execute(facts.posed).verdict is Verdict.PASS else found


def _given_otherwise(facts: Facts) -> Diagnosis | None:
    if any(goes_by_address(mismatch) for mismatch in facts.result.causes):
        return None  # which addresses there are is not what else the case is like
    kinds = {mismatch.kind for mismatch in facts.result.causes}
    subject = next(map(subject_of, facts.result.mismatches))
    if (found := _partial(facts, subject)) is not None:
        return found
    shown = [kind.is_value or kind in (Kind.MEMORY, Kind.DISCIPLINE) for kind in kinds]
    known = any(isinstance(one.detail, (Wrapped, Unkept)) for one in facts.result.causes)
    if not kinds or not all(shown) or known:  # integers that wrap say it all, and so do promises
        return None
    if (found := _configuration(facts, subject)) is not None or Kind.DISCIPLINE in kinds:
        return found
    if reruns.right_in_float64(facts) and rounding.only(facts, values(facts.result)):
        return None  # a little more, or less, of what is lost says nothing of strides
    if not any(map(_is_clear, values(facts.result))) and Kind.MEMORY not in kinds:
        return None  # other numbers, or another order of them, may be within bounds by chance
    return _strides(facts, subject) or _rows(facts, subject) or _upstream(facts, subject)


#: How many times its bound an error is that no other numbers turn into a right one by chance.
CLEAR = 2.0


def _is_clear(wrong: Mismatch) -> bool:
    """Whether it is far beyond what is allowed."""
    measured = [(wrong.error, wrong.bound)]
    if isinstance(wrong.detail, Values):
        of = wrong.detail
        measured += [(of.norm_error, of.norm_bound), (of.gain_error, of.gain_bound)]
    known = [(error, bound) for error, bound in measured if error is not None and bound is not None]
    return not known or any(not error <= CLEAR * bound for error, bound in known)


def _partial(facts: Facts, subject: Subject) -> Diagnosis | None:
    """What raises or is wrong is right where all gradients are asked for."""
    if facts.case.gradients == "all" or not _right(facts, gradients="all"):
        return None
    cause = RightForAllGradients(subject, facts.case.gradients == "none")
    return Diagnosis(Code.PARTIAL_GRADIENTS, cause)


def _configuration(facts: Facts, subject: Subject) -> Diagnosis | None:
    """An autotuned kernel is right in another of its configurations."""
    names, execute = facts.again.configurations, facts.execute
    if len(names) < 2 or execute is None:
        return None
    own = facts.case.seed % len(names)
    for index, name in enumerate(names):
        if index != own and execute(facts.posed, configuration=index).verdict is Verdict.PASS:
            cause = RightInAnotherConfiguration(subject, names[own], name)
            return Diagnosis(Code.WRONG_CONFIGURATION, cause)
    return None


def _strides(facts: Facts, subject: Subject) -> Diagnosis | None:
    """The same numbers in contiguous tensors are right. Those of an expanded one repeat, and then
    do so in memory."""
    if facts.case.memory == "contiguous" or not _right(facts, memory="contiguous"):
        return None
    if facts.case.memory == "aliased":
        return Diagnosis(Code.ALIASED_ARGUMENTS, RightWhenApart(subject))
    cause = RightWhenContiguous(subject, facts.case.memory)
    return Diagnosis(Code.STRIDE_IGNORED, cause)


def _rows(facts: Facts, subject: Subject) -> Diagnosis | None:
    """Rows of finite numbers are wrong, and right where those of others are finite, too."""
    wrong = values(facts.result)
    if facts.case.family != "infinite" or not any(_is_finite_row(facts, one) for one in wrong):
        return None
    if not _right(facts, family="normal"):
        return None
    return Diagnosis(Code.ROWS_NOT_INDEPENDENT, RightWhenFinite(subject))


def _is_finite_row(facts: Facts, wrong: Mismatch) -> bool:
    """Whether the element belongs to a row of an input that is all finite."""
    if wrong.index is None:
        return False
    inputs = facts.posed.problems[0].inputs[0].values()
    rows = [t.isfinite().all(-1) for t in inputs if t.ndim > 1 and t.is_floating_point()]
    targets = facts.target(wrong)
    shape = tuple(targets.value.shape) if targets else ()
    near = [finite for finite in rows if shape[: finite.ndim] == tuple(finite.shape)]
    return bool(near) and all(bool(f[wrong.index[: f.ndim]]) for f in near)


def _right(facts: Facts, **dull: str) -> bool:
    """Whether the case passes with these fields."""
    again = facts.rerun(replace(facts.case, **dull))  # type: ignore[arg-type]
    return again is not None and again.verdict is Verdict.PASS


def _upstream(facts: Facts, subject: Subject) -> Diagnosis | None:
    """Gradients are wrong, and right where all upstream gradients are ones."""
    wrong = values(facts.result)
    if not wrong or any(not mismatch.kind.is_gradient for mismatch in wrong):
        return None
    if facts.execute is None or facts.spec is None:
        return None
    ones = pose(facts.spec, facts.case, ones=True)
    if not all(_says_something(ones, mismatch) for mismatch in wrong):
        return None
    if facts.execute(ones).verdict is not Verdict.PASS:
        return None
    if rounding.of_values(facts, wrong):
        return Diagnosis(Code.PRECISION_LOSS, RightForOnes(subject, rounded=True))
    return Diagnosis(Code.UPSTREAM_IGNORED, RightForOnes(subject))


def _says_something(ones: Posed, wrong: Mismatch) -> bool:
    """Whether the gradient is more than rounding: a normalisation, or a softmax, sends nothing back
    of what is the same for all, whatever it does with the rest."""
    key = (wrong.kind, wrong.tensor)
    for target in ones.problems[0].targets:
        if (target.kind, target.name) == key and target.value.numel():
            limit = target.spread.elementwise_limit(target.value.numel())
            return bool((target.value.abs() > limit * target.spread.sigma).any())
    return False
