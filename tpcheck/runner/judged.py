"""How much of each tensor of a case was judged: by what the ranks compared, and where a wrong value
could have been told."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.evidence.judged import Judged, Tensors
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Entry, by_axis, holds, is_sharded, summed
from tpcheck.process.threads import one_thread
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.problem import Target
from tpcheck.tensors.names import InPass
from tpcheck.vocabulary import Kind, Unjudged


@one_thread()
def judged(posed: Posed, reports: Iterable[RankReport], again: Posed | None = None) -> Tensors:
    """Each tensor of the case, over its passes and dp coordinates.

    Args:
        reports: of all ranks.
        again: under whose bounds the suspect tensors were judged at last.
    """
    by_rank = {report.rank: report for report in reports}
    suspects = {key for report in by_rank.values() for key in report.suspects}
    found: Tensors = {}
    for d, problem in enumerate(posed.problems):
        ranks = [r for r in by_rank if posed.case.dp_coordinate(r) == d]
        last = {(t.kind, t.name): t for t in again.problems[d].targets} if again else {}
        for target in problem.targets:
            key = (target.kind, target.name)
            every = {r: one.compared[key] for r, one in by_rank.items() if key in one.compared}
            held = {r: every[r] for r in ranks if r in every}
            if any(is_sharded(entry, posed.case, axis="dp") for entry in held.values()):
                held = every  # one tensor, of which each coordinate has a part
            name = _without_pass(target.kind, target.name)
            if not held and target.kind is Kind.PARAM and name[1] in posed.computed:
                continue  # the candidate's own affair
            if any(key in by_rank[r].shared for r in ranks):
                size, why = target.value.numel(), Unjudged.SHARED
                shared = Judged(size, 0, cases=1, judged_in=0, why={why: size})
                found[name] = found.get(name, Judged()).beside(shared)
                continue
            own = _of(last.get(key, target) if key in suspects else target, held, posed.case)
            found[name] = found.get(name, Judged()).beside(own)
    return _extra(by_rank.values()) | found


def placed(posed: Posed, reports: Iterable[RankReport]) -> dict[tuple[str, str], Entry]:
    """How ranks have those tensors of parameters that they don't have as the layout says: where it
    names none, a DTensor says it."""
    found: dict[tuple[str, str], Entry] = {}
    due = {(t.kind, t.name): summed(t.entry) for p in posed.problems for t in p.targets}
    for report in reports:
        for key, entry in report.compared.items():
            if key in due and key[0].is_of_parameter and by_axis(entry) != due[key]:
                found.setdefault(key, entry)
    return found


@functools.lru_cache(1 << 12)
def _without_pass(kind: Kind, name: str) -> tuple[Kind, str]:
    """The key of a tensor: one for all cases that have it, which may be 10,000."""
    return kind, InPass.parse(name).base


def _of(target: Target, held: Mapping[int, Entry], case: Case) -> Judged:
    """One tensor of one problem.

    Args:
        held: how each rank that compared it has it placed.
    """
    size = target.value.numel()
    if not size:
        return Judged(cases=1, judged_in=1)
    compared = None if _by_all(target, held, case) else _compared(target.value, held, case)
    why = _reasons(target, compared)
    if case.family == "infinite":  # what follows from ∞ is not meant to be judged
        size -= why.pop(Unjudged.NOT_FINITE, 0)
    count = size - sum(why.values())
    if not size:
        return Judged(cases=1, judged_in=1)
    return Judged(size, count, cases=1, judged_in=int(count > 0), why=why)


def _by_all(target: Target, held: Mapping[int, Entry], case: Case) -> bool:
    """Whether every element was compared: one rank had all of it, or each that is to have a part
    had it placed as the layout says."""
    if any(not is_sharded(entry, case) for entry in held.values()):
        return True
    due = summed(target.entry)
    d = {case.dp_coordinate(rank) for rank in held}
    ranks = {r for r in range(case.world_size) if case.dp_coordinate(r) in d}
    return {r for r in ranks if holds(target.entry, case=case, rank=r)} == set(held) != set() and (
        all(entry == due for entry in held.values())
    )


def _compared(value: Tensor, held: Mapping[int, Entry], case: Case) -> Tensor:
    """Which elements some rank compared, by the index lists of the placements."""
    numbers = torch.arange(value.numel()).reshape(value.shape)
    found = torch.zeros(value.numel(), dtype=torch.bool)
    for rank, entry in held.items():
        found[placement.take(numbers, entry, case=case, rank=rank).reshape(-1)] = True
    return found.reshape(value.shape)


def _reasons(target: Target, compared: Tensor | None) -> dict[Unjudged, int]:
    """Why elements were not judged, each for the first of the reasons that holds."""
    exact = not target.dtype.is_floating_point
    sigma, limit = target.spread.sigma, target.spread.elementwise_limit(target.value.numel())
    # a bound beyond the largest number of the dtype excludes none
    most = torch.inf if exact else torch.finfo(target.dtype).max
    if compared is None and float(sigma.max()) * limit < most:
        return {}
    left = ~(sigma * limit < most)
    finite = target.value.isfinite()
    here = torch.ones_like(left) if compared is None else compared
    own = finite if target.own is None else target.own.isfinite()
    counts = {
        Unjudged.NOT_COMPARED: ~here,
        Unjudged.NOT_FINITE: here & left & ~finite,
        Unjudged.OVERFLOW: here & left & finite & ~own,
        Unjudged.TIE if exact else Unjudged.MAY_OVERFLOW: here & left & finite & own,
    }
    sums = {reason: int(mask.sum()) for reason, mask in counts.items()}
    return {reason: count for reason, count in sums.items() if count}


def _extra(reports: Iterable[RankReport]) -> Tensors:
    """What candidates return beside what the reference does: nothing to hold it against."""
    sizes: dict[str, int] = {}
    for report in reports:
        for name, size in report.extra.items():
            base = InPass.parse(name).base
            sizes[base] = max(size, sizes.get(base, 0))
    return {
        (Kind.OUTPUT, name): Judged(size, 0, cases=1, judged_in=0, why={Unjudged.EXTRA: size})
        for name, size in sizes.items()
    }
