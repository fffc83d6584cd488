"""Whether only precision is lost: what is right in float64, and off by as little as roundings make
it elsewhere."""

from __future__ import annotations

import math

import torch

from tpcheck.bounds.arithmetic import UNIT_ROUNDOFF
from tpcheck.causes.reruns import RoundingOnly
from tpcheck.diagnosis.facts import Facts, gather, largest, subject_of, values
from tpcheck.evidence import Values
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code

#: A value that passes through bfloat16, the coarsest dtype in which sums are sent, is off by at
#: most u = 2^-8 of itself, and terms that are rounded before the sum and their sum after it by 2u
#: of the terms. A factor, a missing term or a term too many is of the size of the terms themselves.
ROUNDINGS = 2 * UNIT_ROUNDOFF[torch.bfloat16]
#: Beyond its bound by this factor an error is still one of rounding, though few terms are behind
#: it. More, and small faults that one dtype alone shows are called so; less, and what is a hair
#: outside has no name.
NEAR = 2.0


def only(facts: Facts, first: list[Mismatch]) -> bool:
    """Whether every error is as small as roundings make it: `NEAR` its bound, or a share of
    `ROUNDINGS` of the terms. σ is what roundings of relative size u move a value by, so that σ / u
    is the size of the terms behind it, also where they cancel."""
    small = (_excess(m) <= NEAR or _error(facts, m) <= ROUNDINGS * _terms(facts, m) for m in first)
    return not any(_by_a_factor(facts, m) for m in first) and all(small)


def of_values(facts: Facts, wrong: list[Mismatch]) -> bool:
    """Whether every error is a share of `ROUNDINGS` of the tensor's largest number, whatever terms
    are behind that."""
    targets = [(m, facts.target(m)) for m in wrong]
    return all(
        t is not None and _error(facts, m) <= ROUNDINGS * largest(t.value.abs()) for m, t in targets
    )


def is_less_off(facts: Facts, other: Facts, wrong: list[Mismatch]) -> bool:
    """Whether another case's tensors are off by half as much at most as these are, as far as it has
    them: of float64 there is no copy in a wider dtype."""
    there = [one for one in wrong if gather(other, one) is not None]
    return all(2 * _error(other, one) <= _error(facts, one) for one in there)


def _by_a_factor(facts: Facts, mismatch: Mismatch) -> bool:
    """Whether no element is outside of its bound, and all have a factor in common that is more than
    its own rounding to the case's dtype: roundings of each point anywhere."""
    own, u = mismatch.detail, UNIT_ROUNDOFF[getattr(torch, facts.case.dtype)]
    if not isinstance(own, Values) or not own.gain_error:
        return False
    inside = (mismatch.error or 0.0) <= (mismatch.bound or 0.0)
    return inside and own.gain_error > max(own.gain_bound or 0.0, u)


def _excess(mismatch: Mismatch) -> float:
    """How many times its bound the error is: the worst element's, or that of all together."""
    pairs = [(mismatch.error, mismatch.bound)]
    if isinstance(own := mismatch.detail, Values):
        pairs += [(own.norm_error, own.norm_bound), (own.gain_error, own.gain_bound)]
    return max((error / (bound or 5e-324) for error, bound in pairs if error), default=math.inf)


def _error(facts: Facts, mismatch: Mismatch) -> float:
    local = gather(facts, mismatch)
    if local is None:  # slices that can't be laid side by side: the element that was reported
        return math.inf if mismatch.error is None else mismatch.error
    off = [(local.actual[r] - local.expected[r]).abs().nan_to_num(math.inf) for r in local.ranks]
    return max((float(t.max()) for t in off if t.numel()), default=0.0)


def _terms(facts: Facts, mismatch: Mismatch) -> float:
    target = facts.target(mismatch)
    if target is None:
        return 0.0
    u = UNIT_ROUNDOFF[getattr(torch, facts.case.dtype)]
    return max(largest(target.spread.sigma) / u, largest(target.value.abs()))


def precision_loss(facts: Facts, first: list[Mismatch]) -> Diagnosis:
    """Only precision is lost: right in float64, and off by no more than a coarser dtype rounds.
    Asked before any other cause: whatever else fits in fewer bits would fit there, too."""
    worst = max(_excess(m) for m in values(facts.result) if m.error is not None)
    return Diagnosis(Code.PRECISION_LOSS, RoundingOnly(subject_of(first[0]), worst))
