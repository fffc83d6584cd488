"""Hypotheses about what each rank adds whole to a sum over the ranks: a bias, an input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from tpcheck.causes.several import InEveryTerm, ScaledBefore, UnsummedBefore
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.sums import are_one
from tpcheck.placement import take
from tpcheck.tensors.names import FIRST
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind


def unsummed_before(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the ranks is too large by R − 1 times what each of them adds whole after it, a
    bias, an input (in backward a cotangent) or both: what comes before that is not summed; or, of a
    module inside, it is, with what each rank has added to its term."""
    if not local.alike() or local.at != FIRST:
        return None
    held, rank = list(local.actual.values()), local.ranks[0]
    if are_one(held):  # of ranks with the same nothing is due
        return None
    want, total = local.expected[rank], torch.stack(held).sum(0)
    for names, joined in _joined(facts, local):
        if not local.fits(total, rank, expected=want + (len(held) - 1) * joined):
            continue
        about = local.subject, tuple(local.ranks), names
        if not _is_summed_after(local, joined):
            return Diagnosis(Code.MISSING_ALL_REDUCE, UnsummedBefore(*about))
        own = set(names) <= facts.problem_of(local).params.keys()
        return Diagnosis(Code.BIAS_PER_RANK if own else Code.SUMMED_TWICE, InEveryTerm(*about))
    return None


def _is_summed_after(local: Local, joined: Tensor) -> bool:
    """Whether the module around this one has taken the sum of what the ranks hold here: they all
    hold the same there, or parts that are too large by what each has added."""
    after = local.around
    if after is None:
        return False
    if are_one(after.actual.values()):
        return True
    more = (len(local.ranks) - 1) * joined
    return more.ndim == 1 and all(
        after.expected[r].shape[-1:] == more.shape
        and after.fits(after.actual[r], r, expected=after.expected[r] + more)
        for r in after.ranks
    )


def scaled_before(facts: Facts, local: Local) -> Diagnosis | None:
    """Everything but what each rank adds whole after the sum is a multiple of what it should be:
    that was summed too often, or averaged, before."""
    exact = local.target.dtype in (torch.float64, torch.float32)  # in fewer digits too much fits
    if not exact or not local.alike() or local.at != FIRST or not local.wrong():
        return None
    tp, rank = float(local.case.tp), local.ranks[0]
    factors = {tp: Code.SUMMED_TWICE, 1.0 / tp: Code.AVERAGED_NOT_SUMMED}
    for names, joined in _joined(facts, local):
        rest = local.expected[rank] - joined
        for factor, code in factors.items():
            due = joined + factor * rest
            if tp > 1 and all(local.fits(a, r, expected=due) for r, a in local.actual.items()):
                return Diagnosis(code, ScaledBefore(local.subject, factor, names))
    return None


def _joined(facts: Facts, local: Local) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """What every rank may add to a tensor that is whole, and its names: vectors as long as the last
    dim, tensors of the same shape, and one of each."""
    problem, posed, rank = facts.problem_of(local), facts.posed, local.ranks[0]
    want = local.expected[rank]
    if local.kind is Kind.OUTPUT:
        given, entries, vectors = problem.inputs[0], posed.inputs, problem.params
    elif local.kind is Kind.INPUT_GRAD:
        given, entries, vectors = problem.cotangents[0], posed.outputs, {}
    else:
        return
    part = partial(take, case=facts.case, rank=rank)
    whole = {n: part(t, entries[n]).double() for n, t in given.items() if t.is_floating_point()}
    alike = [((n,), t) for n, t in whole.items() if t.shape == want.shape]
    vector = [((n,), t.double()) for n, t in vectors.items() if t.shape == want.shape[-1:]]
    both = [(a + b, x + y) for (a, x), (b, y) in product(vector, alike)]
    yield from ((names, t) for names, t in (*vector, *alike, *both) if bool(t.any()))
