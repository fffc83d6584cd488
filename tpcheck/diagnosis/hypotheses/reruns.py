"""Hypotheses that are tested by running another case, or the same one again."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from tpcheck.case import MODES, Case
from tpcheck.causes import (
    Coincidence,
    Factor,
    InAnyDtype,
    OnlyInDtype,
    OnlyInMode,
    OnlySavedAt,
    WhileSaving,
)
from tpcheck.causes.evident import HoldsNaN, NaNOfArithmetic
from tpcheck.causes.norms import NormCounts
from tpcheck.causes.reruns import (
    ChangesOnRerun,
    NothingKnownInDtype,
    RightWithEqualHeads,
    RightWithoutData,
    WrongOnOneRank,
)
from tpcheck.causes.tensor import AllZero, BiasRepeated
from tpcheck.diagnosis.facts import Dumps, Facts, Local, of_another, subject_of, values
from tpcheck.diagnosis.hypotheses import evident, rounding
from tpcheck.diagnosis.one_pass import on_data
from tpcheck.evidence import Values
from tpcheck.oracle.pose import pose
from tpcheck.placement import Heads, by_axis
from tpcheck.tensors.draw import Draw, state
from tpcheck.tensors.names import Key
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch, Verdict
from tpcheck.vocabulary import Code, Counted, Kind


def only_with_dp(facts: Facts, local: Local) -> Diagnosis | None:
    """The same case without the dp axis is right: by a collective, but where the step itself goes
    otherwise on ranks that have other data, or where these do exchange what they are to."""
    if facts.case.dp < 2:
        return None
    if (differ := facts.right_over_dp(local)) is not None:
        return evident.replicas([differ])
    if _exchange_over_dp(facts) or not _right_without_dp(facts):
        return None
    cause = RightWithoutData(local.subject, dict(facts.case.mesh), exchanged=False)
    return Diagnosis(Code.WRONG_GROUP, cause)


def exchanged_over_dp(facts: Facts, local: Local) -> Diagnosis | None:
    """As `only_with_dp`, where ranks of other data do exchange something, as they are to."""
    if not _exchange_over_dp(facts) or not _right_without_dp(facts):
        return None
    cause = RightWithoutData(local.subject, dict(facts.case.mesh), exchanged=True)
    return Diagnosis(Code.UNCLASSIFIED, cause)


def _exchange_over_dp(facts: Facts) -> bool:
    """Whether ranks are to share gradients over dp, and some collective runs over a group of such:
    of other data and the same shards."""
    if facts.case.dp < 2 or not facts.posed.shared:
        return False
    groups = {event.group for rank in facts.again.trace for event in rank}
    return any(_is_over_dp(facts.case, group) for group in groups)


def _is_over_dp(case: Case, group: tuple[int, ...]) -> bool:
    where = [case.coordinates(rank) for rank in group]
    shards = {tuple(own for axis, own in at.items() if axis != "dp") for at in where}
    return len(group) > 1 and len(shards) == 1


def _right_without_dp(facts: Facts) -> bool:
    """Whether the case is right on the data of each dp coordinate alone."""
    case = replace(facts.case, mesh={"tp": facts.case.tp})
    first = facts.rerun(case)
    if first is None or first.mismatches:
        return False
    spec, run = facts.spec, facts.fresh or facts.execute
    if spec is None or run is None:
        return True
    others = (on_data(spec, d=d) for d in range(1, facts.case.dp))
    return not any(run(pose(other, case)).mismatches for other in others)


def not_between_ranks(
    facts: Facts, first: list[Mismatch], named: Diagnosis | None
) -> Diagnosis | None:
    """The same tensor is wrong where one rank computes all of it, in one microbatch: what `named`
    says is done between ranks is not the cause. A factor of 2 at tp=2 may be just a factor of 2.
    None where that is not so, or where `named` says what no other number explains: the sum of what
    the ranks hold is the reference by no accident, unless it is one that the parent takes."""
    subject = getattr(named.cause, "subject", None) if named else None
    before = any(one.subject == subject for one in facts.inside[1:])  # of where it goes wrong
    if named is not None and not (before or _may_fit_by_chance(named)):
        return None
    if not _wrong_on_one_rank(facts, first):
        return None
    refuted = named.code if named else None
    factor = named.cause.factor if named and isinstance(named.cause, Factor) else None
    of = named.cause.bias if named and isinstance(named.cause, BiasRepeated) else None
    cause = WrongOnOneRank(subject_of(first[0]), refuted, factor, of)
    return Diagnosis(Code.UNCLASSIFIED, cause)


def _may_fit_by_chance(named: Diagnosis) -> bool:
    """What is wrong on one rank. A norm that leaves out a parameter, or the first rank's, or counts
    one under two names, does so on any number of ranks."""
    cause = named.cause
    if isinstance(cause, NormCounts) and (cause.of_rank or cause.counted in _ON_ONE_RANK_TOO):
        return False
    if isinstance(cause, AllZero) and named.code is Code.UNWRITTEN_MEMORY:
        return cause.subject.side is not None  # an activation of few elements is zero by itself
    return isinstance(cause, Coincidence)


_ON_ONE_RANK_TOO = (Counted.NAMES, Counted.NEVER, Counted.ALL_BUT_ONE)


def _wrong_on_one_rank(facts: Facts, first: list[Mismatch]) -> bool:
    """Whether one of these tensors has wrong values at tp=1, without other axes, in one microbatch,
    too; False where that can't be asked."""
    alone = replace(facts.case, mesh={"tp": 1}, microbatches=1, saved_at=0)
    requires = facts.spec.requires if facts.spec else None
    if facts.case.world_size == 1 or (requires and requires(alone)):
        return False
    if facts.alone is not None and facts.alone.verdict is Verdict.PASS:
        return False
    result = facts.rerun(alone)
    # values alone count: a case that has no meaning on one rank gives another shape, or raises
    valued = [m for m in result.mismatches if m.error is not None] if result else []
    wrong = {(m.kind, m.name.base) for m in valued}
    return any((m.kind, m.name.base) in wrong for m in first)


def made_by_arithmetic(facts: Facts, named: Diagnosis | None) -> Diagnosis | None:
    """The same case with numbers near 1 has no NaN in the tensor: nothing that was left unwritten
    made those of this one. None where that is not so, or `named` says nothing of NaN."""
    ordinary = replace(facts.case, family="normal", magnitude=0)
    if named is None or not isinstance(named.cause, HoldsNaN) or ordinary == facts.case:
        return None
    subject = named.cause.subject
    result = facts.rerun(ordinary)
    if result is None:
        return None
    again = [m for m in result.mismatches if subject_of(m) == subject]
    if any(isinstance(m.detail, Values) and m.detail.nan for m in again):
        return None
    return Diagnosis(Code.UNCLASSIFIED, NaNOfArithmetic(subject, named.cause.nan))


def right_in_float64(facts: Facts) -> bool:
    """Whether the same case in float64 is right, and nearer to the reference than this one."""
    if right_in_float64.__name__ not in facts.asked:  # of a kernel it is asked twice
        facts.asked[right_in_float64.__name__] = _right_in_float64(facts)
    return bool(facts.asked[right_in_float64.__name__])


def _right_in_float64(facts: Facts) -> bool:
    if facts.case.dtype == "float64":
        return False
    exact = facts.rerun(wide := replace(facts.case, dtype="float64"))
    if exact is None or exact.mismatches:
        return False
    # where the reference computes in fewer digits inside, bounds of float64 hold as much as those
    # of this dtype do
    other = of_another(facts, wide)
    return other is None or rounding.is_less_off(facts, other, values(facts.result))


def in_this_dtype(facts: Facts, first: list[Mismatch], named: Diagnosis | None) -> Diagnosis:
    """The cause, or that none fits, with the dtype that it needs: the path taken depends on it."""
    dtype = facts.case.dtype
    if named is None:
        cause = NothingKnownInDtype(subject_of(first[0]), dtype)
        return Diagnosis(Code.UNCLASSIFIED, cause)
    assert isinstance(named.cause, InAnyDtype), named
    return Diagnosis(named.code, OnlyInDtype(named.cause, dtype))


def in_this_mode(facts: Facts, named: Diagnosis) -> Diagnosis:
    """The cause with the mode that it needs, where the same case is right in training."""
    if facts.case.mode == MODES[0] or not values(facts.result):
        return named
    trained = facts.rerun(replace(facts.case, mode=MODES[0]))
    if trained is None or trained.mismatches:
        return named
    assert not isinstance(named.cause, (OnlyInMode, OnlySavedAt, WhileSaving)), named
    return replace(named, cause=OnlyInMode(named.cause, facts.case.mode))


def when_saved_so(facts: Facts, named: Diagnosis) -> Diagnosis:
    """The cause with the degree that it needs, where the ranks load right what they saved."""
    if not facts.case.saved_at or not values(facts.result):
        return named
    own = facts.rerun(replace(facts.case, saved_at=0))
    if own is None or own.mismatches:
        return named
    assert not isinstance(named.cause, (OnlySavedAt, WhileSaving)), named
    return replace(named, cause=OnlySavedAt(named.cause, facts.case.saved_at))


def changes(facts: Facts) -> Diagnosis | None:
    """The same case gave other values the second time; one that is watched may round otherwise."""
    cause = changed(facts.result, facts.dumps) if facts.plain else None
    return None if cause is None else Diagnosis(Code.STALE_BUFFER, cause)


def changed(result: CaseResult, dumps: Dumps, *, rounds: bool = False) -> ChangesOnRerun | None:
    """What of a result's evidence has another value among the tensors of another run.

    Args:
        rounds: whether the other run may round otherwise: then what is within bounds of the first
            value has not changed.
    """
    for mismatch in result.mismatches:
        again = dumps.get(mismatch.rank, {}).get(Key(mismatch.kind, mismatch.tensor))
        if again is None or mismatch.index is None or mismatch.actual is None:
            continue
        first, second = mismatch.actual, float(again[mismatch.index].double())
        slack = (mismatch.bound or 0.0) if rounds else 0.0
        same = first == second or (math.isnan(first) and math.isnan(second))
        if not same and not abs(first - second) <= slack:
            return ChangesOnRerun(subject_of(mismatch), mismatch.index, first, second)
    return None


def heads(facts: Facts, local: Local) -> Diagnosis | None:
    """With as many K/V heads as query heads the case is right: their map is wrong."""
    dims = facts.case.dims
    if local.kind is not Kind.OUTPUT:
        return None
    if "kv_heads" not in dims or "heads" not in dims or dims["heads"] == dims["kv_heads"]:
        return None
    other = facts.rerun(replace(facts.case, dims={**dims, "kv_heads": dims["heads"]}))
    if other is None or other.mismatches or _wrong_with_equal_kv_heads(facts):
        return None
    cause = RightWithEqualHeads(local.subject, dims["heads"], dims["kv_heads"])
    return Diagnosis(Code.KV_HEAD_MAP, cause)


def _wrong_with_equal_kv_heads(facts: Facts) -> bool:
    """Whether an output is wrong also where all K/V heads have the same weights, so that it does
    not matter which of them a query head meets; False where that can't be asked."""
    spec, heads = facts.spec, facts.case["kv_heads"]
    along = {
        name: own.dim
        for name, entry in facts.posed.params.items()
        for own in by_axis(entry).values()
        if isinstance(own, Heads) and own.heads == heads
    }
    if spec is None or facts.execute is None or not along:
        return False

    def first_head(name: str, shape: tuple[int, ...], draw: Draw) -> Tensor | None:
        given = spec.init(name, shape, draw) if spec.init else None
        if name not in along:
            return given
        if given is None:
            given = state(draw, name, torch.empty(shape), buffer=False)
        dim = along[name]
        first = given.narrow(dim, 0, shape[dim] // heads)
        return torch.cat([first] * heads, dim)

    once = replace(facts.case, microbatches=1, step=False)
    result = facts.execute(pose(replace(spec, init=first_head), once))
    return any(m.kind is Kind.OUTPUT for m in result.mismatches)
