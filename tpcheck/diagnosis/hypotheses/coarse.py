"""Whether a kernel rounds something to a coarser dtype on its way, whatever the case's dtype is.
What is off then hangs on the last bits of its inputs, and another formula's error does not: that of
nearly the same inputs is nearly the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.causes.reruns import RoundedOnTheWay
from tpcheck.diagnosis.facts import Facts, Local, gather, of_another, subject_of, values
from tpcheck.diagnosis.hypotheses import rounding
from tpcheck.protocol.problem import Target
from tpcheck.spec import Spec
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code

#: Of an input to another one.
Change = Callable[[Tensor], Tensor]

#: What inputs are multiplied by, one after the other: by some units of bfloat16's last place each,
#: so that what is rounded to it is rounded by something else.
FACTORS = (1 + 2**-6, 1 - 2**-6, 1 + 2**-5, 1 - 2**-5)
#: How far from 1, at most, what each number is multiplied by on its own may be: what is normalised
#: first does not hang on a factor of them all.
OF_EACH = 2**-6

#: The error of nearly the same inputs is the same within this share of it, or of the result.
SAME = 0.5

#: Errors of so many σ at least are compared, and no smaller than this share of the largest: the
#: roundings of the case's own dtype are others for other inputs, too. Of fewer than so many
#: elements others are the same by chance.
CLEAR, LARGE, MANY = 16.0, 1 / 8, 8

#: What small sizes become, and how many elements there may be then. With fewer there may be nothing
#: left but roundings, as of a row of one number of which the mean is taken.
ENOUGH, MOST = 33, 2048


def rounded_on_the_way(facts: Facts, free: Collection[str]) -> Diagnosis | None:
    """Errors are as small as those of a coarser dtype, and others for most of the inputs that are
    nearly the same: in the case, or, where that has few elements, in one that has more.

    Args:
        free: sizes that may be any.
    """
    wrong = values(facts.result)
    if not wrong:
        return None
    seen = [_seen(facts)]
    if seen[0] is None or seen[0].count < MANY:
        seen += [_seen(_larger(facts, free))]
    known = [one for one in seen if one is not None]
    telling = [one for one in known if one.count >= MANY] or known
    same = [alike for one in telling for alike in one.same]
    if not telling or 2 * sum(same) > len(same):
        return None
    return Diagnosis(Code.PRECISION_LOSS, RoundedOnTheWay(subject_of(wrong[0])))


@dataclass(frozen=True)
class _Seen:
    """What a case shows: of so many errors whether they are the same for inputs that are nearly the
    same, by each of `FACTORS`, or, where most are, for as many others."""

    count: int
    same: list[bool]


def _larger(facts: Facts, free: Collection[str]) -> Facts | None:
    """What the same comes to with sizes that are not small, the last ones first."""
    sizes = {name: int(v) for name, v in facts.case.dims.items() if name in free}
    grown = dict(sizes)
    for name in reversed(sizes):
        larger = {**grown, name: max(ENOUGH, grown[name])}
        if math.prod(max(1, size) for size in larger.values()) <= MOST:
            grown = larger
    if grown == sizes:
        return None
    return of_another(facts, replace(facts.case, dims={**facts.case.dims, **grown}))


def _seen(facts: Facts | None) -> _Seen | None:
    """None where the case can't tell."""
    wrong = values(facts.result) if facts else []
    if facts is None or not wrong or not rounding.only(facts, wrong):
        return None
    first = next((m for m in wrong if _is_float(facts.target(m))), None)
    own = None if first is None else gather(facts, first)
    if first is None or own is None or not (count := int((clear := _clear(own)).sum())):
        return None
    factors = [partial(torch.mul, other=factor) for factor in FACTORS]
    each = [partial(_moved, seed=seed) for seed in range(len(FACTORS))]
    for changes in (factors, each):
        same = [_is_same(own, other, clear) for other in _nearby(facts, first, changes)]
        if len(same) < len(changes):
            return None
        if 2 * sum(same) <= len(same):
            break
    return _Seen(count, same)


def _moved(tensor: Tensor, seed: int) -> Tensor:
    """Numbers nearby; of tensors of one shape, which may be one, all are moved alike."""
    drawn = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(seed))
    return tensor * (1 + OF_EACH * (2 * drawn.to(tensor.dtype) - 1))


def _is_float(target: Target | None) -> bool:
    return target is not None and target.dtype.is_floating_point


def _is_same(one: Local, other: Local, clear: Tensor) -> bool:
    """Whether two errors are about the same: as they are, along one another, or beside what is
    expected. There the middle one is asked: beside what is nearly zero any error is large."""
    a, b = (_error(local)[clear] for local in (one, other))
    of_results = [_relative(local)[clear] for local in (one, other)]
    shares = float(b @ a / (a @ a)), float((of_results[1] / of_results[0]).median())
    return any(abs(share - 1) < SAME for share in shares)


def _nearby(facts: Facts, wrong: Mismatch, changes: Sequence[Change]) -> Iterator[Local]:
    """The same tensor, for inputs that are nearly the same."""
    for change in changes:
        spec = None if facts.spec is None else _with(change, facts.spec)
        nearby = of_another(facts, facts.case, spec)
        own = None if nearby is None else gather(nearby, wrong)
        if own is None:
            return
        yield own


def _with(change: Change, spec: Spec) -> Spec:
    """The spec with inputs that are others."""

    def inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
        drawn = spec.inputs(case, draw)
        return {n: change(t) if t.is_floating_point() else t for n, t in drawn.items()}

    return replace(spec, inputs=inputs)


def _error(local: Local) -> Tensor:
    """Of all ranks' elements, in one row."""
    off = [(local.actual[r] - local.expected[r]).flatten() for r in local.ranks]
    return torch.cat(off).nan_to_num(0.0)


def _relative(local: Local) -> Tensor:
    """The same, beside the elements that are expected."""
    own = torch.cat([local.expected[r].flatten() for r in local.ranks]).abs()
    return _error(local) / own.clamp_min(1e-300)


def _clear(local: Local) -> Tensor:
    """Which errors are large beside roundings, and beside the largest."""
    error, like = _error(local).abs(), local.expected
    sigma = [local.sigma[r].expand_as(like[r]).flatten() for r in local.ranks]
    most = error.max() if error.numel() else 0.0
    return (error > CLEAR * torch.cat(sigma)) & (error >= LARGE * most)
