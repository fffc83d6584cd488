"""Hypotheses about data-parallel ranks: gradients that the spec combines over dp, and what ranks of
other data have to do with what they should not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from tpcheck.causes.several import (
    OwnDataOnly,
    PiecesOverWorld,
    ScaledOverData,
    SomeDataOnly,
    SummedOverData,
)
from tpcheck.diagnosis.exchanged import at_all, in_backward
from tpcheck.diagnosis.facts import Facts, Local, gather, wrong_on_all_data
from tpcheck.oracle.expected import evaluate
from tpcheck.tensors.names import Key
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: dp coordinates of which every choice is tried: 4 have 14.
FEW = 4

#: Elements of a gradient from which on it does not come from the data of some by chance: the
#: larger of two terms is either.
ENOUGH = 6


def over_dp(facts: Facts, local: Local) -> Diagnosis | None:
    """A gradient that the spec wants combined over dp: summed for averaged, the other way round,
    or that of this rank's own data."""
    dp, spec = facts.case.dp, facts.spec
    if dp < 2 or not facts.posed.shared or local.kind is not Kind.PARAM_GRAD or spec is None:
        return None
    every, wrong = wrong_on_all_data(facts, local), local.wrong()
    others = {n for axis, n in facts.case.mesh.items() if axis != "dp"}
    parts = [dp, *(n for n in range(2, dp) if dp % n == 0 and n not in others)]
    twice, averaged = Code.SUMMED_TWICE, Code.AVERAGED_NOT_SUMMED
    factors = [(float(n), twice) for n in parts] + [(1 / n, averaged) for n in parts]
    for factor, code in factors:
        if all(one.fits(one.actual[rank] / factor, rank) for one, rank in every):
            axes = _axes(facts, local, factor)
            return Diagnosis(code, ScaledOverData(local.subject, factor, tuple(wrong), dp, axes))
    own = _of_data(facts, local.key)
    for groups in _in_groups(dp):
        of = {rank: groups[facts.case.dp_coordinate(rank)] for _, rank in every}
        if all(_is_of(one, rank, own, of[rank]) for one, rank in every):
            named: OwnDataOnly | SomeDataOnly = OwnDataOnly(local.subject, tuple(wrong))
            if groups != [[d] for d in range(dp)]:
                named = SomeDataOnly(local.subject, wrong[0], tuple(of[wrong[0]]), dp)
            if groups[0] != groups[-1] or _is_no_accident(facts, local, groups[0]):
                return Diagnosis(Code.PARTIAL_NOT_REDUCED, named)
    return None


def _axes(facts: Facts, local: Local, factor: float) -> tuple[str, ...]:
    """The axes of the mesh that are as large as a factor, or its inverse, dp first: those along
    which it may be one sum too many, which is one of the sums in backward: of the gradient, or of
    what it is computed from, which makes multiples of what is sharded along that axis, too. A
    division may be by any."""
    case, size, sent = facts.case, round(max(factor, 1 / factor)), in_backward(facts)
    same = [axis for axis, n in case.mesh.items() if n == size and axis != "dp"]
    if factor > 1:
        same = [axis for axis in same if sent.may_along(axis)]
    return tuple(axis for axis in ("dp", *same) if case.mesh[axis] == size)


def _other_gradients(facts: Facts, local: Local) -> Iterator[Local | None]:
    """Those of the same step that are wrong; None for one that not all of its ranks have."""
    wrong = (m for m in facts.result.mismatches if m.kind is Kind.PARAM_GRAD)
    others = {m.tensor: m for m in wrong if m.name.at == local.at and m.tensor != local.target.name}
    yield from (gather(facts, mismatch) for mismatch in others.values())


def _in_groups(dp: int) -> Iterator[list[list[int]]]:
    """Of each dp coordinate, whose data it may have: its own, that of so many neighbours, or of as
    many as far apart as they can be; or all have that of the same ones, of few."""
    for size in (n for n in range(1, dp) if dp % n == 0):
        yield [[*range(d // size * size, d // size * size + size)] for d in range(dp)]
        if size > 1:
            yield [[*range(d % (dp // size), dp, dp // size)] for d in range(dp)]
    for size in range(1, dp if dp <= FEW else 0):
        yield from ([[*some]] * dp for some in combinations(range(dp), size))


def _is_of(local: Local, rank: int, own: list[Tensor], coordinates: list[int]) -> bool:
    """Whether a rank has the sum of what these dp coordinates' data give, or a mean of it."""
    want = local.part_of(torch.stack([own[d] for d in coordinates]).sum(0), rank)
    factors = {1, len(coordinates), len(own)}
    return any(local.fits(local.actual[rank] * f, rank, expected=want) for f in factors)


def _is_no_accident(facts: Facts, local: Local, coordinates: list[int]) -> bool:
    """Whether a gradient that is of these dp coordinates' data on all ranks has many elements, or
    all others that are wrong in that step are of these data, too."""
    if local.target.value.numel() >= ENOUGH:
        return True
    for other in _other_gradients(facts, local):
        own = [] if other is None else _of_data(facts, other.key)
        every = [] if other is None else wrong_on_all_data(facts, other)
        if not every or not all(_is_of(one, r, own, coordinates) for one, r in every):
            return False
    return True


def _of_data(facts: Facts, key: Key) -> list[Tensor]:
    """The full gradients that the reference has of the data of each dp coordinate."""
    assert facts.spec is not None
    if _of_data not in facts.asked:
        alone = replace(facts.spec, dp_gradients="local")
        problems = facts.posed.problems
        facts.asked[_of_data] = [evaluate(alone, facts.case, one)[0] for one in problems]
    return [values[key] for values in facts.asked[_of_data]]


def other_data_group(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the dp groups' references, or their mean, is what the ranks have: a group too
    large. Where each has the same reference it says nothing of their data."""
    dp, sent, wrong = facts.case.dp, at_all(facts), local.wrong()
    if dp < 2 or local.counts or not sent.may_along("dp"):
        return None
    targets = (t for problem in facts.posed.problems for t in problem.targets)
    each = [t.value for t in targets if (t.kind, t.name) == local.key]
    if len(each) < dp:  # a tensor inside: only this group's reference of it is known
        return None
    if all(local.fits(local.part_of(value, rank), rank) for value in each for rank in wrong):
        return None
    total = torch.stack(each).sum(0)
    for divided_by in (1, dp):
        if wrong and all(local.holds(total / divided_by, rank) for rank in wrong):
            mean, world = divided_by > 1, sent.may_beyond("dp")
            cause = SummedOverData(local.subject, wrong[0], dp, mean, world)
            return Diagnosis(Code.WRONG_GROUP, cause)
    return None


def pieces_over_world(facts: Facts, local: Local) -> Diagnosis | None:
    """Each rank has the sum of the pieces that all ranks have of a gradient, or a mean of it, where
    the spec wants it combined over dp alone."""
    dp, wrong = facts.case.dp, wrong_on_all_data(facts, local)
    if local.kind is not Kind.PARAM_GRAD or dp < 2 or not facts.posed.shared or local.alike():
        return None
    pieces = [local.expected[rank] for rank in local.ranks]
    if any(p.shape != pieces[0].shape for p in pieces) or not in_backward(facts).may_beyond("dp"):
        return None
    total, sizes = torch.stack(pieces).sum(0), (len(pieces), dp, facts.case.world_size)
    for factor in (1.0, float(dp), *(1 / n for n in sizes)):
        if all(one.fits(one.actual[r], r, expected=factor * total) for one, r in wrong):
            return Diagnosis(Code.WRONG_GROUP, PiecesOverWorld(local.subject, factor, len(pieces)))
    return None
