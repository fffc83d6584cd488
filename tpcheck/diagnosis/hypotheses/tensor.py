"""Hypotheses about one wrong tensor, from what the ranks hold of it. Letters: R degree."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.causes.tensor import (
    AllZero,
    BiasRepeated,
    LowPrecision,
    PartsExchanged,
    PiecesSummed,
    Scaled,
    ScaledOnSomeRanks,
    Unaveraged,
    Unsummed,
    WrongInLaterPass,
)
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.one_pass import wrong_alone
from tpcheck.protocol.scaling import SCALE
from tpcheck.tensors.blocks import largest
from tpcheck.tensors.names import FIRST, InPass
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Kind


def zero(facts: Facts, local: Local) -> Diagnosis | None:
    """Everything is zero where it should not be."""
    wrong = local.wrong()
    if not wrong or any(bool(local.actual[r].any()) for r in wrong):
        return None
    if not all(bool(local.expected[r].isfinite().all()) for r in wrong):
        return None  # it is the reference's that is odd
    if local.kind.is_output and local.target.exact is not None:
        return None  # of integers and bools zero is a number like another
    inputs = facts.posed.problems[0].inputs[0].values()
    ids = any(not t.is_floating_point() for t in inputs)
    looked_up = ids and len(wrong) < len(local.ranks)
    cause = AllZero(local.subject, tuple(wrong), looked_up)
    if local.kind is Kind.OUTPUT:
        return Diagnosis(Code.UNWRITTEN_MEMORY, cause)
    return Diagnosis(Code.VOCAB_MASK if looked_up else Code.GRADIENT_DROPPED, cause)


def scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """actual = c × expected, one c for all ranks: summed too often, or averaged."""
    tp, wrong = float(local.case.tp), local.wrong()
    if local.kind is Kind.GRAD_NORM:  # whose ways to be counted twice are asked by themselves
        return None
    if not wrong or local.counts or _terms_as_large(local) or _stepped_apart(local, wrong):
        return None
    passes = local.case.microbatches if local.kind is Kind.PARAM_GRAD else 1
    twice, averaged = Code.SUMMED_TWICE, Code.AVERAGED_NOT_SUMMED
    factors: dict[float, Code] = {1.0 / passes: averaged, passes: twice}
    factors |= {tp: twice, tp * tp: twice, 1.0 / tp: averaged, 1.0 / (tp * tp): averaged}
    for factor, code in factors.items():
        if factor != 1 and all(local.fits(local.actual[r] / factor, r) for r in wrong):
            as_many = passes if factor in (passes, 1.0 / passes) else None
            world = factor == tp == local.case.world_size
            cause = Scaled(local.subject, factor, tuple(wrong), world, as_many)
            return Diagnosis(code, cause)
    return None


def _stepped_apart(local: Local, wrong: list[int]) -> bool:
    """Whether a step left some replicas right and others not: the others took another one, and
    what counts steps, say, is a multiple of what it should be."""
    of_step = local.kind in (Kind.PARAM, Kind.OPTIMIZER_STATE)
    return of_step and local.alike() and len(wrong) < len(local.ranks)


def _terms_as_large(local: Local) -> bool:
    """Whether replicas differ and add up to the reference: terms of its sum, by chance about as
    large as each other. What every rank scales alike differs by rounding at most, where each rank
    adds up in an order of its own."""
    if not local.alike():
        return False
    terms = torch.stack(list(local.actual.values()))
    rounding = len(terms) * UNIT_ROUNDOFF.get(local.target.dtype, 0.0) * terms.abs().max()
    if bool(((terms - terms[0]).abs() <= rounding).all()):
        return False
    return local.fits(terms.sum(0), local.ranks[0])


def summed(facts: Facts, local: Local) -> Diagnosis | None:
    """The sum over the TP group, over another axis, or over the replicas, is the reference; or, of
    an optimizer's state, the mean is."""
    if len(local.ranks) < 2 or InPass.parse(local.target.name).base == SCALE:
        return None
    entry, shape, case = local.target.entry, tuple(local.target.value.shape), local.case
    groups = placement.replicas(entry, shape, case=case)
    for axis in case.mesh:
        groups += placement.replicas(entry, shape, case=case, over=[axis])
    wrong = set(local.wrong())
    for ranks in groups:
        if not set(ranks) <= set(local.ranks) or not wrong & set(ranks):
            continue
        held = [local.actual[r] for r in ranks]
        if any(tensor.shape != held[0].shape for tensor in held):
            continue  # inside a module, where parts are uneven, or none
        if any(not torch.equal(local.expected[r], local.expected[ranks[0]]) for r in ranks):
            continue  # inside a module, where each is to have a part of its own
        total = torch.stack(held).sum(0)
        code = Code.PARTIAL_NOT_REDUCED if local.kind in _OF_PARAMETER else Code.MISSING_ALL_REDUCE
        if local.fits(total, ranks[0]):
            return Diagnosis(code, Unsummed(local.subject, tuple(ranks)))
        of_state = local.kind is Kind.OPTIMIZER_STATE and set(ranks) <= wrong
        if of_state and local.fits(total / len(ranks), ranks[0]):
            return Diagnosis(code, Unaveraged(local.subject, tuple(ranks)))
    return None


_OF_PARAMETER = (Kind.PARAM_GRAD, Kind.PARAM, Kind.OPTIMIZER_STATE)


def other_rank(facts: Facts, local: Local) -> Diagnosis | None:
    """Each rank holds what another rank should hold."""
    wrong = local.wrong()
    owners = {rank: _owner(local, rank) for rank in wrong}
    known = {rank: owner for rank, owner in owners.items() if owner is not None}
    if not wrong or len(known) < len(wrong):
        return None
    return Diagnosis(Code.SHARD_ORDER, PartsExchanged(local.subject, known))


def _owner(local: Local, rank: int) -> int | None:
    """The other rank that should hold what `rank` does."""
    held = local.actual[rank]
    if not bool(held.any()):
        return None
    for other in local.ranks:
        part = local.expected[other]
        if other == rank or local.fits(part, rank):
            continue  # what is about its own says nothing
        if local.fits(held, rank, expected=part):
            return None if _is_multiple(held, local.expected[rank], (held - part).norm()) else other
    return None


#: Of a sum of a few vectors, each of which is rounded.
ROUNDINGS = 8


def _unit(dtype: torch.dtype) -> float:
    return UNIT_ROUNDOFF.get(dtype, UNIT_ROUNDOFF[torch.float64])


def _is_multiple(held: Tensor, own: Tensor, off: Tensor) -> bool:
    """Whether a multiple of a rank's own part is much nearer to what it holds than `off`."""
    if held.shape != own.shape or held.numel() < 2:  # any number is a multiple of any other
        return False
    scale = (held * own).sum() / (own * own).sum().clamp_min(1e-300)
    return bool((held - scale * own).norm() < 0.25 * off)


def bias(facts: Facts, local: Local) -> Diagnosis | None:
    """actual − expected is a multiple of one parameter vector, the same in every row."""
    if local.kind is not Kind.OUTPUT:
        return None
    vectors = {n: p.double() for n, p in facts.posed.problems[0].params.items() if p.ndim == 1}
    for rank in local.wrong():
        gap = local.actual[rank] - local.expected[rank]
        gap = gap.reshape(-1, gap.shape[-1]) if gap.ndim else gap.reshape(1, 1)
        gap = gap[(gap.abs() > 1e-9).any(1)]
        for name, vector in vectors.items():
            factor = _multiple(gap, vector, local)
            if factor is not None:
                cause = BiasRepeated(local.subject, rank, factor, name)
                return Diagnosis(Code.BIAS_PER_RANK, cause)
    return None


def _multiple(gap: Tensor, vector: Tensor, local: Local) -> float | None:
    """How many times `vector` each row of the gap is: a whole number, and not zero, as far as its
    rounding and the tensor's bounds tell. Of what is narrow a few percent would fit anything."""
    if vector.shape != gap.shape[-1:] or not len(gap):
        return None
    factor = float((gap @ vector).mean() / (vector @ vector))
    if not math.isfinite(factor):
        return None
    size = abs(times := round(factor)) * largest(vector.abs())
    slack = local.slack(local.target.value.numel()) + ROUNDINGS * _unit(local.target.dtype) * size
    near = largest((gap - times * vector).abs()) <= slack
    return float(times) if near and times else None


def one_rank_scaled(facts: Facts, local: Local) -> Diagnosis | None:
    """Some ranks hold c × the reference, the others the reference: what was done was not done
    by all."""
    wrong = local.wrong()
    if len(wrong) == len(local.ranks):
        return None
    other = None
    for rank in wrong:
        want, got = local.expected[rank], local.actual[rank]
        scale = float((got * want).sum() / (want * want).sum().clamp_min(1e-300))
        if abs(scale) < 1e-6 or not local.fits(got / scale, rank):
            return None
        # one element, or the gradient of one row, is a multiple of anything: in other modules, or
        # with other numbers, the factor must be the same
        if _in_other_modules(facts.result, local, rank, scale):
            continue
        other = other or facts.rerun(replace(facts.case, seed=facts.case.seed + 1))
        if other is None or not _scales(other, local, rank, scale):
            return None
    return Diagnosis(Code.REPLICAS_DIFFER, ScaledOnSomeRanks(local.subject, tuple(wrong)))


def _in_other_modules(result: CaseResult, local: Local, rank: int, scale: float) -> bool:
    """Whether all wrong gradients of the rank, of more than one module, are off by this factor."""
    wrong = [m for m in result.mismatches if (m.kind, m.rank) == (Kind.PARAM_GRAD, rank)]
    several = len({m.tensor.rpartition(".")[0] for m in wrong}) > 1
    return local.kind is Kind.PARAM_GRAD and several and all(_by(m, scale) for m in wrong)


def _scales(result: CaseResult, local: Local, rank: int, scale: float) -> bool:
    """Whether the same tensor of the rank is off by this factor in another case, too."""
    key = (local.kind, local.target.name, rank)
    return any((m.kind, m.tensor, m.rank) == key and _by(m, scale) for m in result.mismatches)


def _by(mismatch: Mismatch, scale: float) -> bool:
    """Whether it is off by this factor, and by much more than the factor is known to."""
    if mismatch.expected is None or mismatch.actual is None or mismatch.error is None:
        return False
    near = min(2 * (mismatch.bound or 0.0) + 1e-9 * abs(mismatch.actual), mismatch.error / 8)
    return abs(mismatch.actual - scale * mismatch.expected) <= near


#: Elements, of which fewer are a lower dtype's by chance, or by what the candidate computes: they
#: are off by one rounding then, and else by those of several steps.
FEW = 8


def low_precision(facts: Facts, local: Local) -> Diagnosis | None:
    """All values are a lower dtype's, and off by its rounding."""
    rank = local.wrong()[0]
    want, got = local.expected[rank], local.actual[rank]
    if local.target.dtype not in UNIT_ROUNDOFF:  # integers are not rounded
        return None
    if not bool(got.isfinite().all()) or float(want.norm()) == 0.0:
        return None
    off = float((got - want).norm() / want.norm())
    own = UNIT_ROUNDOFF[local.target.dtype]
    fit = [
        dtype
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        if (u := UNIT_ROUNDOFF[dtype]) > own and off < (8 * u if got.numel() >= FEW else u)
        if bool((got.to(dtype).double() == got).all())
    ]
    if not fit:
        return None
    # a number of bfloat16 is one of the others, too: the coarsest that is off by as little
    dtype = next((d for d in reversed(fit) if off > UNIT_ROUNDOFF[d] / 16), fit[0])
    name = str(dtype).removeprefix("torch.")
    return Diagnosis(Code.PRECISION_LOSS, LowPrecision(local.subject, off, name))


def sum_of_pieces(facts: Facts, local: Local) -> Diagnosis | None:
    """What one rank holds is the sum of different pieces, which should have stayed apart."""
    if local.kind is not Kind.PARAM_GRAD:
        return None
    pieces: list[Tensor] = []
    for rank in local.ranks:
        want = local.expected[rank]
        if not any(want.shape == p.shape and torch.equal(want, p) for p in pieces):
            pieces.append(want)
    if len(pieces) < 2 or any(p.shape != pieces[0].shape for p in pieces):
        return None
    total = torch.stack(pieces).sum(0)
    for rank in local.wrong():
        if local.fits(local.actual[rank], rank, expected=total):
            return Diagnosis(Code.SUMMED_TWICE, PiecesSummed(local.subject, rank))
    return None


def later_pass_only(facts: Facts, local: Local) -> Diagnosis | None:
    """The first microbatch's output is right and a later one, or the one after a step, is not; and
    a later microbatch is right as a case's only one."""
    if not local.kind.is_output or local.at == FIRST:
        return None
    first = (local.kind, InPass.parse(local.target.name).base)
    if any((m.kind, m.tensor) == first for m in facts.result.mismatches):
        return None
    if wrong_alone(facts, local):
        return None
    return Diagnosis(Code.STALE_BUFFER, WrongInLaterPass(local.subject))
