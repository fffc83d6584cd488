"""Hypotheses about the column of sharded logits that is each token's target: which rank has it, and
which element. They are tested on the reference and the candidate, and know no loss's formula.

Legend: T tokens, W columns, R degree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.causes.targets import LogitsOfForeignTargets, LossOfOtherTargets, TargetsColumn
from tpcheck.causes.where import Side
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.labelled import Labelled, labelled
from tpcheck.diagnosis.hypotheses.reference import answers, with_other
from tpcheck.oracle.pose import pose
from tpcheck.tensors.draw import Draw
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: Pairs of a target and another that are tried; the reference is run for each.
MOST_TARGETS = 256
#: What the logits of ranks without the target's column are set to, all alike.
LEVELS = (0.0, 1.0, 2.0)


# ---- in the loss


def other_targets(facts: Facts, local: Local) -> Diagnosis | None:
    """What each wrong rank has is the reference's loss of other targets: each token's own, where
    it has a number, else one id taken for another, or those of one rank (or of all) for ones that
    are as far away."""
    found = labelled(facts, local) if local.kind.is_output else None
    exact = local.target.dtype in (torch.float64, torch.float32)
    if found is None or not exact or not answers(facts, local):
        return None
    if local.target.value.numel() > found.ids.numel():  # not a loss: of each token, or fewer
        return None
    losses = _losses(facts, local, found)
    if losses is None:
        return None
    each = local.target.value.numel() == found.ids.numel()
    taken = _by_token if each else _by_id
    shown = [taken(local, found, losses, rank) for rank in local.wrong()]
    if not shown or any(one is None for one in shown):
        return None
    given, instead = next(one for one in shown if one is not None)
    cause = LossOfOtherTargets(local.subject, local.wrong()[0], found.ids_name, given, instead)
    return Diagnosis(Code.VOCAB_MASK, cause)


Losses = Mapping[tuple[int, int], Tensor]  # (id, another) → the loss with that in its place


def _losses(facts: Facts, local: Local, found: Labelled) -> Losses | None:
    """The reference's; None where it can't be asked, or would be asked too often."""
    ids = found.ids[found.counted].unique().tolist()
    columns = found.used.nonzero().flatten().tolist()
    pairs = [(given, other) for given in ids for other in columns if given != other]
    if len(pairs) > MOST_TARGETS:
        return None
    losses: dict[tuple[int, int], Tensor] = {}
    for given, other in pairs:
        ask = partial(_instead, given, other)
        full = with_other(facts, local, Side.INPUT, found.ids_name, ask)
        if full is None or full.shape != local.target.value.shape:
            return None
        losses[given, other] = full
    return losses


def _instead(given: int, other: int, ids: Tensor) -> Tensor:
    return torch.where(ids == given, torch.full_like(ids, other), ids)


def _by_token(local: Local, found: Labelled, losses: Losses, rank: int) -> tuple[int, int] | None:
    """One of the targets that were taken for others, and that one; None where that is not all."""
    actual, expected = local.actual[rank].flatten(), local.expected[rank].flatten()
    slack = 2 * local.target.spread.elementwise_limit(actual.numel())
    bound = slack * local.target.spread.sigma.max() + 1e-13 * local.target.value.abs().max()
    shown = None
    for token in ((actual - expected).abs() > bound).nonzero().flatten().tolist():
        given = int(found.ids[token])
        near = (
            pair
            for pair, loss in losses.items()
            if pair[0] == given and (actual[token] - loss.flatten()[token]).abs() <= bound
        )
        pair = next(near, None)
        if pair is None:
            return None
        shown = shown or pair
    return shown


def _by_id(local: Local, found: Labelled, losses: Losses, rank: int) -> tuple[int, int] | None:
    """One of the ids that were taken for others, and that one; None where none of these fit."""
    value = local.target.value
    for pairs in _choices(found, losses):
        total = value + sum((losses[pair] - value for pair in pairs), torch.zeros_like(value))
        if local.holds(total, rank):
            return pairs[0]
    return None


def _choices(found: Labelled, losses: Losses) -> Iterator[list[tuple[int, int]]]:
    """One id for another; those of one rank, then of all, for ones `by` further, or the last."""
    yield from ([pair] for pair in losses)
    width = found.logits.shape[1]
    ids = {given for given, _ in losses}
    ranges = [set(columns.tolist()) for columns in found.held.values()]
    for columns in [*ranges, set(range(width))]:
        own, ends = sorted(ids & columns), (min(columns, default=0), max(columns, default=0))
        for by in (k for k in range(-width, width + 1) if k):
            moved = [(given, min(max(given + by, ends[0]), ends[1])) for given in own]
            pairs = [pair for pair in moved if pair in losses]
            if len(pairs) > 1:
                yield pairs


def foreign_targets(facts: Facts, local: Local) -> Diagnosis | None:
    """Where the logits of ranks without the target's column are all the same number, the loss is
    less by a multiple of that number: right where it is 0, and twice as wrong for twice of it."""
    found = labelled(facts, local) if local.kind.is_output else None
    if found is None or not found.given or facts.spec is None or facts.execute is None:
        return None
    gaps = [_gap(facts, local, found, level) for level in LEVELS]
    if any(gap is None for gap in gaps):
        return None
    (none, _), (once, near), (twice, nearer) = (gap for gap in gaps if gap is not None)
    if none or once >= 0 or abs(twice - 2 * once) > 2 * near + nearer + 1e-9 * abs(twice):
        return None
    cause = LogitsOfForeignTargets(local.subject, found.name, found.ids_name)
    return Diagnosis(Code.VOCAB_MASK, cause)


def _gap(facts: Facts, local: Local, found: Labelled, level: float) -> tuple[float, float] | None:
    """How far the candidate is off where foreign logits are `level`, and its bound; 0 where it is
    right, None where it shows no number."""
    assert facts.spec is not None and facts.execute is not None
    levelled = replace(facts.spec, inputs=partial(_levelled, facts, found, level))
    result = facts.execute(pose(levelled, replace(facts.case, microbatches=1, step=False)))
    wrong = [m for m in result.mismatches if (m.kind, m.tensor) == local.key]
    if not wrong:
        others = [m for m in result.mismatches if not m.kind.is_gradient]
        return None if others else (0.0, 0.0)
    first = wrong[0]
    if first.actual is None or first.expected is None:
        return None
    return first.actual - first.expected, first.bound or 0.0


def _levelled(
    facts: Facts, found: Labelled, level: float, case: Case, draw: Draw
) -> dict[str, Tensor]:
    """The inputs, with the logits of each token on other ranks than its target's set to `level`."""
    assert facts.spec is not None
    inputs = dict(facts.spec.inputs(case, draw))
    logits, ids, owner = inputs[found.name], inputs[found.ids_name], found.owner
    foreign = owner != owner[ids.clamp(0, len(owner) - 1)][..., None]
    inputs[found.name] = torch.where(foreign, torch.full_like(logits, level), logits)
    return inputs


# ---- in the gradient


def target_columns(facts: Facts, local: Local) -> Diagnosis | None:
    """Each wrong element of dlogits lacks the target's own term, or has it too many: what the
    reference has in the target's column more than in others where all logits are alike."""
    found = labelled(facts, local) if local.kind is Kind.INPUT_GRAD else None
    if found is None or not found.given or local.target.name != found.name:
        return None
    flat = with_other(facts, local, Side.INPUT, found.name, torch.zeros_like)
    if flat is None or int(found.used.sum()) < 2:
        return None
    own = _own_terms(flat.reshape(found.logits.shape), found)
    slack = 2 * local.target.spread.elementwise_limit(flat.numel())
    lacking, added, rows = 0, 0, set[int]()
    for rank, columns in found.held.items():
        tokens = found.ids.numel()
        gap = (local.actual[rank] - local.expected[rank]).reshape(tokens, -1)
        near = slack * local.sigma[rank].reshape(tokens, -1) + 1e-13
        wrong = gap.abs() > near
        is_own = columns[None, :] == found.ids[:, None]
        due = torch.where(is_own, -own[:, None], own[:, None])
        explained = (gap - due).abs() <= 2 * near
        if bool((wrong & ~explained).any()) or int((wrong & ~is_own).sum(1).max()) > 1:
            return None
        lacking += int((wrong & is_own).sum())
        added += int((wrong & ~is_own).sum())
        rows |= set(wrong.any(1).nonzero().flatten().tolist())
    if not rows:
        return None
    return Diagnosis(Code.VOCAB_MASK, TargetsColumn(local.subject, len(rows), lacking, added))


def _own_terms(flat: Tensor, found: Labelled) -> Tensor:
    """How much more [T] the target's column has than another one; 0 of tokens that do not count."""
    used = found.used.nonzero().flatten()
    ids = torch.where(found.counted, found.ids, used[0])
    other = torch.where(ids == used[0], used[1], used[0])
    more = flat.gather(1, ids[:, None])[:, 0] - flat.gather(1, other[:, None])[:, 0]
    return more * found.counted
