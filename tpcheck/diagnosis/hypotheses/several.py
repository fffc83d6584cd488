"""Hypotheses that need more than the wrong tensor: other tensors of the case, or the trace."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tpcheck.causes.several import (
    AllScaled,
    BranchAveraged,
    BranchRepeated,
    BranchUnsummed,
    JoinsEveryTerm,
    Overwritten,
)
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.sums import are_one
from tpcheck.placement import take
from tpcheck.tensors.boundaries import Border
from tpcheck.tensors.names import FIRST, Shelf
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, End, Kind, Phase

#: Wrong gradients, and elements of them, from which on a common factor is not an accident; fewer
#: are off by one factor too easily.
TENSORS, ELEMENTS = 3, 6

#: How far the multiple of a part that is nearest to a gap may be from the one that is named: more
#: would take 1/3 for 1/2, less would be off by rounding in a half precision.
NEAR = 0.1

#: Where a module's part of an input's gradient, or of an output, crosses its boundary.
_SIDES = {Kind.INPUT_GRAD: (Phase.BACKWARD, End.IN), Kind.OUTPUT: (Phase.FORWARD, End.OUT)}


def partial_branch(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the ranks is too large by R − 1 times what all modules but one send back, or
    give: that one's gradient, or output, is not summed over the ranks, the others' are."""
    if not local.alike():
        return None
    rank, tp, held = local.ranks[0], local.case.tp, list(local.actual.values())
    if are_one(held):  # of ranks with the same nothing is due
        return None
    want, total = local.expected[rank], torch.stack(held).sum(0)
    for module, part in _branches(facts, local):
        if part.shape != want.shape:
            continue
        rest = want - part
        if bool(rest.any()) and local.fits(total, rank, expected=want + (tp - 1) * rest):
            return Diagnosis(Code.MISSING_ALL_REDUCE, BranchUnsummed(local.subject, module))
    return None


def repeated_branch(facts: Facts, local: Local) -> Diagnosis | None:
    """Every rank is off by R − 1 times what one module sends back, or gives: that is summed over
    the ranks once more than the others'."""
    times = local.case.tp - 1
    module = _off_by(facts, local, times)
    if module is None:
        return None
    return Diagnosis(Code.SUMMED_TWICE, BranchRepeated(local.subject, module, times))


def averaged_branch(facts: Facts, local: Local) -> Diagnosis | None:
    """Every rank lacks all but 1/R of what one module sends back, or gives: the sum of that over
    the ranks was divided by R, the others' are what they should be."""
    tp = local.case.tp
    module = _off_by(facts, local, 1 / tp - 1)
    if module is None:
        return None
    return Diagnosis(Code.AVERAGED_NOT_SUMMED, BranchAveraged(local.subject, module, tp))


def _off_by(facts: Facts, local: Local, times: float) -> str | None:
    """The module of which every rank's tensor has so many times its part more than it should."""
    if local.case.tp < 2 or len(local.ranks) < 2 or len(local.wrong()) != len(local.ranks):
        return None
    for module, whole in _branches(facts, local):
        parts = {r: local.part_of(whole, r) for r in local.ranks}
        if all(
            part.shape == local.expected[r].shape
            and bool(part.any())
            and local.fits(local.actual[r], r, expected=local.expected[r] + times * part)
            and _is_about(local.actual[r] - local.expected[r], times, part)
            for r, part in parts.items()
        ):
            return module
    return None


def _is_about(gap: Tensor, times: float, part: Tensor) -> bool:
    """Whether a gap is about so many times a part by itself: wide bounds hold other multiples,
    too."""
    most = float((gap * part).sum() / (part * part).sum())
    return abs(most - times) <= NEAR * abs(times)


def _branches(facts: Facts, local: Local) -> Iterator[tuple[str, Tensor]]:
    """Modules inside the reference, and what each adds to the tensor, of its shape."""
    if local.kind not in _SIDES:
        return
    rank = local.ranks[0]
    d = facts.case.dp_coordinate(rank)
    for target in facts.posed.problems[d].borders:
        border = Border.of(target.name)
        of_branch = border.module and (border.phase, border.side) == _SIDES[local.kind]
        if of_branch and target.value.shape == local.target.value.shape:
            yield border.module, target.value


def residual(facts: Facts, local: Local) -> Diagnosis | None:
    """The gap is R − 1 times an input (or, in backward, a cotangent): it was summed over ranks."""
    case, problem = facts.case, facts.posed.problems[0]
    if local.kind is Kind.OUTPUT:
        given, entries = problem.inputs[0], facts.posed.inputs
    elif local.kind is Kind.INPUT_GRAD:
        given, entries = problem.cotangents[0], facts.posed.outputs
    else:
        return None
    if case.dp > 1 or case.tp < 2 or local.at != FIRST:
        return None
    for name, full in given.items():
        for rank in local.wrong():
            part = take(full, entries[name], case=case, rank=rank).double()
            due, actual = local.expected[rank], local.actual[rank]
            if part.shape != due.shape or not bool(part.any()):
                continue
            fits = local.fits(actual, rank, expected=due + (case.tp - 1) * part)
            if fits and _is_about(actual - due, case.tp - 1, part):
                cause = JoinsEveryTerm(local.subject, name, case.tp - 1)
                return Diagnosis(Code.SUMMED_TWICE, cause)
    return None


def overwritten(facts: Facts, local: Local) -> Diagnosis | None:
    """A tensor that backward still needs was written over: by a collective, or by anything. In a
    step it has read all of them."""
    if not local.kind.is_gradient:
        return None
    every = (event for rank in facts.again.trace for event in rank)
    for event in (e for e in every if e.overwrites and e.phase is not Phase.STEP):
        return Diagnosis(Code.STALE_BUFFER, Overwritten(event.where, event.op))
    keys = {key for dump in facts.dumps.values() for key in dump}
    for where in sorted(key.name for key in keys if key.kind == Shelf.OVERWRITTEN):
        return Diagnosis(Code.STALE_BUFFER, Overwritten(where))
    return None


def common_factor(facts: Facts) -> Diagnosis | None:
    """Every wrong gradient, at the element where it is furthest off, is the same multiple of the
    reference. For parameters whose live placement is another than the layout's (sharded over dp,
    too), so that their slices can't be laid side by side."""
    wrong = [m for m in facts.result.mismatches if m.kind is Kind.PARAM_GRAD and m.expected]
    ratios = [(m.actual or 0.0) / m.expected for m in wrong if m.expected]
    elements = len({m.expected for m in wrong})
    if len({m.tensor for m in wrong}) < TENSORS or elements < ELEMENTS:
        return None
    case = facts.case
    near = 1e-6 if case.dtype == "float64" else 1e-3
    degrees = {n: tuple(a for a, own in case.mesh.items() if own == n) for n in case.mesh.values()}
    degrees |= {case.world_size: ()}
    twice, averaged = Code.SUMMED_TWICE, Code.AVERAGED_NOT_SUMMED
    for degree, axes in degrees.items():
        for factor, code in ((degree, twice), (1 / degree, averaged)):
            if degree > 1 and all(abs(r - factor) <= near * factor for r in ratios):
                return Diagnosis(code, AllScaled(factor, len(wrong), axes))
    return None
