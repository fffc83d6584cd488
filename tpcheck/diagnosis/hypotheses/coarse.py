"""Whether a kernel rounds something to a coarser dtype on its way, whatever the case's dtype is.
What is off then hangs on the last bits of its inputs, and another formula's error does not: that of
nearly the same inputs is nearly the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tpcheck.case import Case
from tpcheck.causes.reruns import RoundedOnTheWay
from tpcheck.diagnosis.facts import Facts, Local, local_of, subject_of, values
from tpcheck.diagnosis.hypotheses import rounding
from tpcheck.errors import InvalidArgument
from tpcheck.given import is_whole
from tpcheck.oracle.pose import pose
from tpcheck.spec import Spec
from tpcheck.verdict import Diagnosis, Mismatch
from tpcheck.vocabulary import Code

#: What inputs are multiplied by, one after the other: by some units of bfloat16's last place each,
#: so that what is rounded to it is rounded by something else.
FACTORS = (1 + 2**-6, 1 - 2**-6, 1 + 2**-5, 1 - 2**-5)

#: The error of nearly the same inputs is the same within this share of it. Other roundings are so
#: in one of four.
SAME = 0.5

#: Sizes of a case that is large enough to have more than roundings in it.
FEW = 33

#: Errors of so many σ at least are compared, and no smaller than this share of the largest: the
#: roundings of the case's own dtype are others for other inputs, too.
CLEAR, LARGE = 16.0, 1 / 8


def rounded_on_the_way(facts: Facts) -> Diagnosis | None:
    """Errors are as small as those of a coarser dtype, and others for most of the inputs that are
    nearly the same: in the case, or in one that is larger. In a small one there may be nothing left
    but roundings, as of a row of one number of which the mean is taken."""
    wrong = values(facts.result)
    if wrong and (_is_rounded(facts) or _is_rounded(_larger(facts))):
        return Diagnosis(Code.PRECISION_LOSS, RoundedOnTheWay(subject_of(wrong[0])))
    return None


def _larger(facts: Facts) -> Facts | None:
    """What the same comes to with sizes that are not small."""
    sizes = [name for name, v in facts.case.dims.items() if is_whole(v, 1) and int(v) < FEW]
    if not sizes or facts.spec is None:
        return None
    return _posed(facts, replace(facts.case, dims={**facts.case.dims, **dict.fromkeys(sizes, FEW)}))


def _is_rounded(facts: Facts | None) -> bool:
    wrong = values(facts.result) if facts else []
    if facts is None or not wrong or not rounding.only(facts, wrong):
        return False
    own = _local(facts, wrong[0])
    if own is None or not (clear := _clear(own)).any():
        return False
    error = _error(own)[clear]
    others = list(_errors_nearby(facts, wrong[0]))
    same = [abs(float(other[clear] @ error / (error @ error)) - 1) < SAME for other in others]
    return len(same) == len(FACTORS) and 2 * sum(same) <= len(same)


def _errors_nearby(facts: Facts, wrong: Mismatch) -> Iterator[Tensor]:
    """What the same tensor is off by, for inputs that are nearly the same."""
    for factor in FACTORS:
        nearby = _posed(facts, facts.case, factor)
        own = None if nearby is None else _local(nearby, wrong)
        if own is None:
            return
        yield _error(own)


def _posed(facts: Facts, case: Case, factor: float = 1.0) -> Facts | None:
    """What a case comes to, with inputs that are so many times as large; None where none can be."""
    if facts.spec is None or facts.keep is None:
        return None
    try:
        posed = pose(_scaled(facts.spec, factor), case, None)
    except InvalidArgument:
        return None
    again, dumps = facts.keep(posed)
    return replace(facts, posed=posed, result=again, again=again, dumps=dumps)


def _scaled(spec: Spec, factor: float) -> Spec:
    """The spec with inputs that are so many times as large."""

    def inputs(case: Case, draw: Any) -> Mapping[str, Tensor]:
        drawn = spec.inputs(case, draw)
        return {n: t * factor if t.is_floating_point() else t for n, t in drawn.items()}

    return replace(spec, inputs=inputs)


def _local(facts: Facts, wrong: Mismatch) -> Local | None:
    target = facts.target(wrong)
    return None if target is None else local_of(facts, target, facts.data_of(wrong))


def _error(local: Local) -> Tensor:
    """Of all ranks' elements, in one row."""
    off = [(local.actual[r] - local.expected[r]).flatten() for r in local.ranks]
    return torch.cat(off).nan_to_num(0.0)


def _clear(local: Local) -> Tensor:
    """Which errors are large beside roundings, and beside the largest."""
    error, like = _error(local).abs(), local.expected
    sigma = [local.sigma[r].expand_as(like[r]).flatten() for r in local.ranks]
    most = error.max() if error.numel() else 0.0
    return (error > CLEAR * torch.cat(sigma)) & (error >= LARGE * most)
