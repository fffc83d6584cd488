"""Hypotheses about steps of an optimizer: what it leaves out, adds up, or takes too far.

Letters: R degree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tpcheck.causes.steps import (
    BeginsAnew,
    FrozenMoves,
    GradientOfOwnPart,
    NotStepped,
    NotZeroed,
    UpdateScaled,
)
from tpcheck.diagnosis.facts import Facts, Local, gather
from tpcheck.diagnosis.replay import by_one_step, share_of, unclipped, value_of
from tpcheck.placement import is_sharded
from tpcheck.protocol.optimizing import MAIN, parameter_of
from tpcheck.protocol.scaling import SCALE
from tpcheck.tensors.names import InPass, Key, Pass
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Kind

#: Numbers of each rank that must agree on a factor: one always does, and those of few bits by
#: chance.
AGREE = {torch.float64: 2, torch.float32: 2, torch.bfloat16: 8, torch.float16: 8}

#: How far a gap may be from having just so much of a tensor in it, of that. With more, what bounds
#: leave open is taken for it; with less, rounding hides it.
ADDED = 0.25


def not_taken(facts: Facts, local: Local) -> Diagnosis | None:
    """Wrong ranks hold what they had before the step: what rounds more than a step changes shows
    that after several."""
    return _kept_by(facts, local, local.wrong())


def moves_frozen(facts: Facts, local: Local) -> Diagnosis | None:
    """Steps change a parameter that takes no gradient, and that the reference's leave as it is."""
    name = InPass.parse(local.target.name).base
    drawn = facts.problem_of(local).params.get(name)
    if local.kind is not Kind.PARAM or name not in facts.posed.frozen or drawn is None:
        return None
    if not torch.equal(drawn.double(), local.target.value):
        return None
    return Diagnosis(Code.NOT_FROZEN, FrozenMoves(local.subject, tuple(local.wrong())))


def _kept_by(facts: Facts, local: Local, wrong: Sequence[int]) -> Diagnosis | None:
    """As `not_taken`, of these ranks."""
    if not wrong or not all(stays(facts, local, rank) for rank in wrong):
        return None
    over_dp, buffer = facts.right_over_dp(local), is_buffer(facts, local.kind, local.target.name)
    others = len(wrong) < len(local.ranks) or over_dp is not None
    if InPass.parse(local.target.name).base == SCALE and not others:
        return None  # it hangs on no gradient but by whether all are finite
    code = Code.STALE_BUFFER if buffer else Code.GRADIENT_DROPPED
    if others and (over_dp is not None or local.alike()):
        code = Code.REPLICAS_DIFFER
    return Diagnosis(code, NotStepped(local.subject, tuple(wrong), others, buffer))


def not_given_back(facts: Facts, mismatch: Mismatch) -> Diagnosis | None:
    """The copy by which a parameter steps has stepped, and the parameter is what it was. A case in
    float64 has no such copies, so that it is right there for that alone."""
    name = InPass.parse(mismatch.tensor)
    copy = str(InPass(f"{name.base}.{MAIN}", name.at))
    targets = facts.posed.problems[facts.data_of(mismatch)].targets
    if mismatch.kind is not Kind.PARAM or copy not in {t.name for t in targets}:
        return None
    if any(m.tensor == copy for m in facts.result.mismatches):
        return None
    if (local := gather(facts, mismatch)) is None:
        return None
    return _kept_by(facts, local, sorted(facts.seen_wrong(local) & set(local.ranks)))


def is_buffer(facts: Facts, kind: Kind, tensor: str) -> bool:
    """Whether it takes no gradient, and is not frozen: forwards update it, and no step does."""
    targets = facts.posed.problems[0].targets
    graded = {InPass.parse(t.name).base for t in targets if t.kind is Kind.PARAM_GRAD}
    return kind is Kind.PARAM and InPass.parse(tensor).base not in graded | facts.posed.frozen


def of_own_part(facts: Facts, local: Local) -> Diagnosis | None:
    """Of replicas, what the step adds to what is linear in the gradient, a mean or a momentum, is
    right once it is summed over the ranks: each has stepped by a gradient that is left partial,
    and may be before the ranks clip."""
    training, problem = facts.spec and facts.spec.training, facts.problem_of(local)
    if local.kind is not Kind.OPTIMIZER_STATE or not training or training.scaling is not None:
        return None
    base, step = InPass.parse(local.target.name).base, local.at.step
    owner = parameter_of(base, problem.params)
    # a rank that is right has stepped by the whole, and the others by nothing
    if set(local.wrong()) != set(local.ranks) or not local.alike() or owner is None:
        return None
    held = [local.actual[rank] for rank in local.ranks]
    if all(torch.equal(tensor, held[0]) for tensor in held):
        return None  # parts differ: two of what is clipped by half are together what is not
    without = unclipped(problem, training, step, without=owner)[0].get(base)
    whole = unclipped(problem, training, step)[0].get(base)
    if without is None or whole is None or not without.is_floating_point():
        return None
    added = torch.stack([tensor - without for tensor in held]).sum(0)
    for clipped, left in ((True, local.target.value), (False, whole)):
        due = left - without
        near = ((added - due) * due).sum().abs() <= ADDED * due.square().sum()
        if due.any() and near and local.fits(added + without, local.ranks[0], expected=left):
            cause = GradientOfOwnPart(local.subject, tuple(local.ranks), clipped)
            return Diagnosis(Code.PARTIAL_NOT_REDUCED, cause)
    return None


def not_zeroed(facts: Facts, local: Local) -> Diagnosis | None:
    """Wrong ranks hold what is expected plus the gradient of the step before, as it was clipped."""
    step, wrong = local.at.step, local.wrong()
    if local.kind is not Kind.PARAM_GRAD or not step or not wrong:
        return None
    problem, base = facts.problem_of(local), InPass.parse(local.target.name).base
    earlier = value_of(problem, Kind.PARAM_GRAD, base, step - 1)
    if earlier is None:
        return None
    added = share_of(problem, step - 1) * earlier
    both = local.target.value + added
    if not all(local.holds(both, rank) and _is_added(local, added, rank) for rank in wrong):
        return None
    return Diagnosis(Code.STALE_BUFFER, NotZeroed(local.subject))


def _is_added(local: Local, added: Tensor, rank: int) -> bool:
    """Whether the gap of a rank has just so much of a tensor in it: late in training bounds are
    wide, and other gaps are within them, too."""
    part = local.part_of(added, rank).flatten()
    gap = (local.actual[rank] - local.expected[rank]).flatten()
    return bool((gap @ part - part @ part).abs() <= ADDED * (part @ part))


def begins_anew(facts: Facts, local: Local) -> Diagnosis | None:
    """Wrong ranks keep what the reference's optimizer would if the step were its first."""
    wrong, training = local.wrong(), facts.spec and facts.spec.training
    if local.kind is not Kind.OPTIMIZER_STATE or not local.at.step or not wrong or not training:
        return None
    kept = by_one_step(facts.problem_of(local), training, local.at.step)
    fresh = kept.get(InPass.parse(local.target.name).base)
    if fresh is None or not all(local.holds(fresh, rank) for rank in wrong):
        return None
    others = len(wrong) < len(local.ranks)
    code = Code.REPLICAS_DIFFER if others else Code.GRADIENT_DROPPED
    return Diagnosis(code, BeginsAnew(local.subject, tuple(wrong), others))


def scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """What a step changes on wrong ranks is a multiple of what it should change: one for all, or,
    of a parameter that is sharded, each rank's own."""
    before, wrong = before_step(facts, local, local.at.step), local.wrong()
    fewest = min((local.expected[rank].numel() for rank in wrong), default=0)
    if before is None or fewest < AGREE.get(local.target.dtype, 2):
        return None
    factors = {rank: _factor(local, local.part_of(before, rank), rank) for rank in wrong}
    found = {rank: factor for rank, factor in factors.items() if factor is not None}
    if len(found) < len(wrong):
        return None
    first = next(iter(found.values()))
    one = all(abs(factor - first) <= 1e-2 * abs(first) for factor in found.values())
    share = share_of(facts.problem_of(local), local.at.step)
    if one and share < 1 and abs(first * share - 1) <= 1e-2:
        return None  # by gradients that are not clipped
    code = _code_of(local, first if one else None)
    if code is None:
        return None
    world = code in (Code.SUMMED_TWICE, Code.AVERAGED_NOT_SUMMED)
    return Diagnosis(code, UpdateScaled(local.subject, found, world))


def _code_of(local: Local, factor: float | None) -> Code | None:
    """By the factor of all wrong ranks; None where each has its own."""
    if factor is None:
        sharded = is_sharded(local.target.entry, local.case)
        return Code.PARTIAL_NOT_REDUCED if sharded else None
    if len(local.wrong()) < len(local.ranks):
        return Code.REPLICAS_DIFFER
    for known, code in ((1.0, Code.SUMMED_TWICE), (-1.0, Code.AVERAGED_NOT_SUMMED)):
        if abs(factor - local.case.tp**known) <= 1e-2 * factor and local.case.tp > 1:
            return code
    return None


def _factor(local: Local, before: Tensor, rank: int) -> float | None:
    """The factor c of before + c · update, where one fits what the rank holds."""
    update, changed = local.expected[rank] - before, local.actual[rank] - before
    size = float(update.square().sum())
    if not size:
        return None
    factor = float((update * changed).sum()) / size
    fits = local.fits(local.actual[rank], rank, expected=before + factor * update)
    return factor if fits else None


def stays(facts: Facts, local: Local, rank: int) -> bool:
    """Whether a rank has what it had last before the step, which may be another's to keep in
    between: to the bit, since bounds may be wider than what a step changes."""
    base = InPass.parse(local.target.name).base
    for step in reversed(range(local.at.step)):
        own = facts.dumps.get(rank, {}).get(Key(local.kind, str(InPass(base, Pass(0, step)))))
        if own is not None:
            return torch.equal(own.double(), local.actual[rank])
    if (given := before_step(facts, local, 0)) is None:
        return False
    part = local.part_of(given, rank).to(local.target.dtype)
    return torch.equal(part.double(), local.actual[rank])


def before_step(facts: Facts, local: Local, step: int) -> Tensor | None:
    """What was there before a step: of a parameter, or of the optimizer's state of it."""
    if local.kind not in (Kind.PARAM, Kind.OPTIMIZER_STATE):
        return None
    problem, in_pass = facts.problem_of(local), InPass.parse(local.target.name)
    if step:
        return value_of(problem, local.kind, in_pass.base, step - 1)
    copied = in_pass.base.removesuffix(f".{MAIN}")
    if local.kind is Kind.OPTIMIZER_STATE and copied == in_pass.base:
        return torch.zeros_like(local.target.value)
    drawn = problem.params.get(copied)
    return None if drawn is None else drawn.double()
