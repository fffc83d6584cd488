"""A hypothesis about what is of all ranks' parts together: the largest number, by which a tensor is
scaled before it is rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tpcheck.bounds.arithmetic import results
from tpcheck.case import Case
from tpcheck.causes.altered import ScaledByOwnParts
from tpcheck.causes.tensor import LargestNotShared
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.diagnosis.hypotheses.reference import answers, given
from tpcheck.errors import let_through
from tpcheck.placement import Entry, Sharded, by_axis, take
from tpcheck.protocol.problem import Problem
from tpcheck.tensors.dispatch import OverCompiled, is_whole
from tpcheck.tensors.names import UPSTREAM
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: How often the reference is run for one case, about: once for each rank's part of each tensor.
MOST_RUNS = 100

#: Dtypes in which only numbers that were scaled are held.
_FEW_DIGITS = frozenset(
    dtype
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and (name.startswith("float8") or name == "int8")
)

#: Names of what is sharded; upstream gradients as "d output".
Names = tuple[str, ...]


def of_own_parts(facts: Facts, local: Local) -> Diagnosis | None:
    """In the reference, which rounds to few digits, the ranks hold what it gives for each rank's
    part of sharded tensors by itself, the other parts zero, added up over the ranks. Of what is
    linear in these tensors that is the reference's own value, which they do not hold: each rank
    has rounded by what its own part comes to."""
    if not answers(facts, local) or set(facts.case.mesh) != {"tp"} or not _rounds(facts):
        return None
    for names in _choices(facts, local):
        full = _added_up(facts, local, names)
        if full is not None and all(local.holds(full, rank) for rank in local.ranks):
            return Diagnosis(Code.SCALE_NOT_SHARED, ScaledByOwnParts(local.subject, names))
    return None


def largest_of_own_part(facts: Facts, local: Local) -> Diagnosis | None:
    """Of what is kept from forward to forward, or from step to step: the largest over the ranks,
    element by element, is the reference, where none is negative and the ranks should have the
    same."""
    if local.kind not in (Kind.PARAM, Kind.OPTIMIZER_STATE) or len(local.ranks) < 2:
        return None
    same = [local.expected[rank] for rank in local.ranks]
    if any(not torch.equal(each, same[0]) for each in same) or bool((same[0] < 0).any()):
        return None
    largest = torch.stack([local.actual[rank] for rank in local.ranks]).amax(0)
    if not local.wrong() or not local.fits(largest, local.ranks[0]):
        return None
    return Diagnosis(Code.SCALE_NOT_SHARED, LargestNotShared(local.subject, tuple(local.ranks)))


class _Roundings(OverCompiled):
    """Whether a tensor of few digits is made, or one is rounded to whole numbers."""

    seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if is_whole(func):
            return self.whole(func, args, kwargs)
        out = func(*args, **(kwargs or {}))
        few = any(isinstance(o, Tensor) and o.dtype in _FEW_DIGITS for o in results(out))
        self.seen = self.seen or few or func.overloadpacket.__name__ == "round"
        return out


def _rounds(facts: Facts) -> bool:
    """Whether the reference does."""
    if _rounds.__name__ not in facts.asked:
        with _Roundings() as roundings:
            given(facts, facts.posed.problems[0])
        facts.asked[_rounds.__name__] = roundings.seen
    return bool(facts.asked[_rounds.__name__])


def _choices(facts: Facts, local: Local) -> Iterator[Names]:
    """Sharded tensors, each alone, as many as the runs suffice for, and then all of them."""
    posed = facts.posed
    entries = {**posed.inputs, **posed.params}
    if not local.kind.is_output:
        entries |= {UPSTREAM + name: entry for name, entry in posed.outputs.items()}
    sharded = tuple(name for name, entry in entries.items() if _is_sharded(entry))
    yield from ((name,) for name in sharded[: MOST_RUNS // (facts.case.tp + 1)])
    if len(sharded) > 1:
        yield sharded


def _is_sharded(entry: Entry) -> bool:
    return isinstance(by_axis(entry).get("tp"), Sharded)


def _added_up(facts: Facts, local: Local, names: Names) -> Tensor | None:
    """What the reference gives in the place of the tensor for each rank's part, added up. What no
    part has any share in is in each of these, and in what it gives for none: that is taken away.
    None where it raises for such numbers."""
    each = [_given(facts, names, rank).get(local.key) for rank in (None, *range(facts.case.tp))]
    known = [value for value in each if value is not None]
    if len(known) < len(each):
        return None
    none, *own = known
    return none + torch.stack([value - none for value in own]).sum(0)


def _given(facts: Facts, names: Names, rank: int | None) -> Mapping[tuple[str, str], Tensor]:
    """Everything that the reference gives with all parts of these tensors zero but that of `rank`;
    nothing where it raises for such numbers."""
    key = (_given.__name__, names, rank)
    if key not in facts.asked:
        facts.asked[key] = {}
        try:
            facts.asked[key] = given(facts, _without_other_parts(facts, names, rank))
        except Exception as error:
            let_through(error)
    found: Mapping[tuple[str, str], Tensor] = facts.asked[key]
    return found


def _without_other_parts(facts: Facts, names: Names, rank: int | None) -> Problem:
    posed, whole = facts.posed, facts.posed.problems[0]

    def kept(
        tensors: Mapping[str, Tensor], entries: Mapping[str, Entry], prefix: str = ""
    ) -> dict[str, Tensor]:
        own = {name: tensors[name] for name in tensors if prefix + name in names}
        parts = {n: _part(tensor, entries[n], facts.case, rank) for n, tensor in own.items()}
        return {**tensors, **parts}

    return replace(
        whole,
        params=kept(whole.params, posed.params),
        inputs=[kept(own, posed.inputs) for own in whole.inputs],
        cotangents=[kept(own, posed.outputs, UPSTREAM) for own in whole.cotangents],
    )


def _part(full: Tensor, entry: Entry, case: Case, rank: int | None) -> Tensor:
    """The tensor with zeros where `rank` has no part of it."""
    if rank is None:
        return torch.zeros_like(full)
    index = torch.arange(full.numel()).reshape(full.shape)
    own = torch.zeros(full.numel(), dtype=torch.bool)
    own[take(index, entry, case=case, rank=rank).flatten()] = True
    return torch.where(own.reshape(full.shape), full, torch.zeros_like(full))
