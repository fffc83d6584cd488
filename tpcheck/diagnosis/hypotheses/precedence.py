"""The order in which the hypotheses about wrong values are asked: the most specific ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tpcheck.causes.evident import HoldsNaN
from tpcheck.diagnosis import one_pass
from tpcheck.diagnosis.facts import Facts, Local, gather, values
from tpcheck.diagnosis.hypotheses import (
    altered,
    clipping,
    data,
    evident,
    joined,
    left_out,
    loaded,
    losses,
    microbatches,
    norms,
    reruns,
    resumed,
    rounding,
    rows,
    scales,
    several,
    steps,
    targets,
    tensor,
    terms,
    tied,
    traced,
)
from tpcheck.diagnosis.one_step import by_itself
from tpcheck.evidence import Values
from tpcheck.tensors.names import STEP
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Kind

Hypothesis = Callable[[Facts, Local], Diagnosis | None]

HYPOTHESES: tuple[Hypothesis, ...] = (
    # was seen on the way, in the trace or in the bits that were saved: nothing is inferred
    several.overwritten,
    # a gap that is one parameter in every row fits little else
    tensor.bias,
    # of the one number that the norm is: most factors fit one
    norms.counted_otherwise,
    # before ranks that did not clip: each has another update, and they add up by no accident
    steps.of_own_part,
    # ranks that went another way in one place
    clipping.not_clipped,
    # before other steps: it says which ranks, and why
    left_out.taken_by_others,
    # of what no step is to change
    steps.moves_frozen,
    # before factors: what a step adds, of numbers that are right before it
    steps.not_taken,
    steps.begins_anew,
    steps.scaled,
    # one way to be wrong from the second step on
    steps.not_zeroed,
    # before `scaled`: dp may be as large as R, and the spec says which gradients it combines
    data.over_dp,
    # dp groups have other data, so that the sum of theirs is a multiple of none
    data.other_data_group,
    # the same of shards: a sum of other ranks' is the reference by no accident
    data.pieces_over_world,
    # before `summed`: replicas that were averaged once too often add up to the reference, too
    tensor.scaled,
    # as `scaled`, by a share that the tokens themselves give
    losses.mean_of_others,
    # terms that add up to the reference do so by no accident
    tensor.summed,
    # as `summed`, over the names of one tensor in place of its ranks
    tied.stages,
    # the same of one rank: each use of it, as many times as it is there
    tied.uses,
    # before `later_pass_only`: an order explains all passes at once
    microbatches.reordered,
    # after the factors and sums, which may be wrong in a later pass only
    tensor.later_pass_only,
    # as `summed`, of ranks that hold different pieces
    tensor.sum_of_pieces,
    # runs the reference once per microbatch
    microbatches.accumulated,
    # an input that joins every term: at tp=2 one term too many, so after the plain factors
    several.residual,
    # the same of what one module sends back, or gives
    several.partial_branch,
    several.repeated_branch,
    several.averaged_branch,
    # after what a module gives, which is more telling than what every rank adds
    joined.unsummed_before,
    # a factor of a part, as `scaled` of all
    joined.scaled_before,
    # before `lookups`: positions that other ranks have are missing from rows of a table, too
    terms.own_terms_only,
    # before orders: a row that is empty, or another token's, is not a permutation
    rows.lookups,
    # of each token's columns: a loss whose ranks are off by what theirs alone would give
    losses.statistics,
    # before rows and parts: one element of each row, by as much as the target's own
    targets.target_columns,
    # before other terms: one way of gathering explains all ranks at once
    altered.regathered,
    # any choice of terms that is the only one to fit
    terms.some_terms_only,
    # before orders of rows: heads that meet others are rows in another order, too
    reruns.heads,
    # the whole part of another rank, before rows of it
    tensor.other_rank,
    # rows of the reference in another order
    rows.permuted,
    # after `lookups`, which knows which rows of a table are empty
    tensor.zero,
    # any factor, on some ranks: weaker than R, so that other numbers must show it, too
    tensor.one_rank_scaled,
    # says that dp matters, and not how
    reruns.only_with_dp,
    # runs the reference once per rank
    altered.own_part_only,
    # an element of one rank for each of the reference's fits little else
    scales.largest_of_own_part,
    # the same of each sharded tensor, and of backward
    scales.of_own_parts,
    # what is computed in a lower dtype may have any cause above
    tensor.low_precision,
    # from the trace alone: the values are not asked
    traced.missing_collective,
    # runs the reference up to a hundred times
    altered.exchanged_pieces,
    # runs the reference once per target
    targets.other_targets,
    # runs the candidate again, on other inputs
    targets.foreign_targets,
    altered.mixed_rows,
    # says that dp matters, and what it is not
    reruns.exchanged_over_dp,
)


def by_values(facts: Facts) -> Diagnosis | None:
    """The cause of the first wrong tensors, of the first step that has any: of the outputs where
    one is wrong, since what comes after follows from them, else of the gradients."""
    wrong = values(facts.result)
    if not wrong:
        return None
    wrong = _not_from_the_norm([m for m in wrong if m.name.at.step == wrong[0].name.at.step])
    # an output after the step follows from the gradients
    before = [m for m in wrong if not m.of.is_output or m.name.at != STEP]
    first = [m for m in before if m.kind.is_output] or before or wrong
    at_once = (
        loaded.misloaded(facts)
        or resumed.misresumed(facts)
        or reruns.changes(facts)
        or left_out.taken_anyway(facts, first)
        or _first(map(evident.evident, first))
    )
    if at_once is not None and isinstance(at_once.cause, HoldsNaN):
        # of memory that nobody wrote; a tensor without it that is wrong, too, does not follow
        at_once = _named(facts, [m for m in first if not _has_nan(m)]) or at_once
    if at_once is not None:
        if (arithmetic := reruns.made_by_arithmetic(facts, at_once)) is not None:
            return arithmetic
        if isinstance(at_once.cause, HoldsNaN):
            lines = tuple(sorted(facts.result.undefined))
            return replace(at_once, cause=replace(at_once.cause, undefined=lines))
        return at_once
    exact = reruns.right_in_float64(facts)
    if exact and (kept := _first(steps.not_given_back(facts, m) for m in first)) is not None:
        return kept
    if exact and rounding.only(facts, first):
        return rounding.precision_loss(facts, first)
    named = _named(facts, first) or _differ_after_the_step(first, wrong)
    if (refuted := reruns.not_between_ranks(facts, first, named)) is not None:
        named = _differ_after_the_step(first, wrong) or refuted
    return reruns.in_this_dtype(facts, first, named) if exact else named


def _differ_after_the_step(first: list[Mismatch], wrong: list[Mismatch]) -> Diagnosis | None:
    """Ranks with the same part hold different bits: what one rank that computes all of it does
    wrong, too, does not have them differ. Not where gradients are wrong before the step."""
    differ = [m for m in wrong if m.kind is Kind.REPLICA]
    after = not first[0].kind.is_reduced
    return evident.replicas(differ) if differ and after else None


def _has_nan(mismatch: Mismatch) -> bool:
    return isinstance(mismatch.detail, Values) and bool(mismatch.detail.nan)


def _not_from_the_norm(wrong: list[Mismatch]) -> list[Mismatch]:
    """Without what a step leaves, where the norm by which it clips is wrong: on ranks that clip
    otherwise parameters and replicas differ, and so do outputs of later passes."""
    norms = [m for m in wrong if m.kind is Kind.GRAD_NORM]
    early = [m for m in wrong if m.name.at != STEP and m.kind.order < Kind.GRAD_NORM.order]
    return [*early, *norms] if norms else wrong


def _named(facts: Facts, first: list[Mismatch]) -> Diagnosis | None:
    """What fits the tensor at the boundary of the module where it starts, where that is known, else
    one of those that went wrong first."""
    inside = _first(_first_that_fits(facts, local) for local in facts.inside)
    each = (_tested(facts, m) for m in _each_once(facts, first))
    return inside or _first(each) or several.common_factor(facts)


def _each_once(facts: Facts, mismatches: list[Mismatch]) -> list[Mismatch]:
    """The first mismatch of each tensor and dp coordinate: it is tested on all its ranks."""
    seen: dict[tuple[str, str, int], Mismatch] = {}
    for m in mismatches:
        seen.setdefault((m.kind, m.tensor, facts.data_of(m)), m)
    return list(seen.values())


def _tested(facts: Facts, mismatch: Mismatch) -> Diagnosis | None:
    local = gather(facts, mismatch)
    return None if local is None else _first_that_fits(facts, local)


def _first_that_fits(facts: Facts, local: Local) -> Diagnosis | None:
    if not local.wrong():
        return None
    alone = by_itself(facts, local)
    if alone is not None and local.inside is not None:
        return _first(test(*alone) for test in HYPOTHESES)
    if alone is None:
        named = _first(test(facts, local) for test in HYPOTHESES)
        only = None if named else one_pass.alone(facts, local)
        return named if only is None else _first(test(*only) for test in HYPOTHESES)
    # what comes from another step is not known of one by itself
    added = steps.not_zeroed(facts, local)
    named = added or _first(test(*alone) for test in HYPOTHESES)
    return named or tensor.later_pass_only(facts, local)


def _first(answers: Iterable[Diagnosis | None]) -> Diagnosis | None:
    return next(filter(None, answers), None)
