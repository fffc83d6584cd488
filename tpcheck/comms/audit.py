"""One rank's trace against a budget: what exceeds it, and what should have run and did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tpcheck.budget import Budget, ring
from tpcheck.case import Case
from tpcheck.event import Event
from tpcheck.evidence import OverBudget, OverSaved, PathNotTaken, WrongDtype
from tpcheck.tensors.case_mode import FREEZING
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Phase

#: Ring volumes are fractions of elements: a sum of them may be off by its last bits.
_ROUNDING = 1e-9


def audit(
    budget: Budget,
    case: Case,
    rank: int,
    events: Sequence[Event],
    saved: int = 0,
    counted: Mapping[tuple[Phase, str], int] | None = None,
    steps: int = 1,
    updates: bool = False,
) -> list[Mismatch]:
    """What rank `rank` did, against what the budget allows each microbatch.

    Args:
        saved: elements that autograd kept after the first forward.
        counted: (phase, name) → how often a kernel or an operator that the budget names ran.
        steps: that were taken, each with its microbatches.
        updates: whether something clips gradients or steps an optimizer: what that sends has no
            budget. A plain step sends what the forward after it does.
    """
    found: list[Mismatch] = []
    if budget.saved is not None and saved > budget.saved:
        detail = OverSaved(saved, budget.saved)
        found.append(_over("saved", Kind.SAVED_BYTES, rank, budget.saved, saved, detail))
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.STEP):
        if phase is Phase.STEP and updates:
            continue
        passes = 1 if phase is Phase.STEP else steps * case.microbatches
        ran = [event for event in events if event.phase is phase]
        sent = sum(ring(event.op, event.elements, len(event.group)) for event in ran)
        allowed = budget.allowed(phase, case.tp) * passes
        if sent > allowed * (1 + _ROUNDING):
            times = OverBudget(phase, dict(Counter(event.op for event in ran)), passes)
            over = _over("communication", Kind.COMMUNICATION_BYTES, rank, allowed, sent, times)
            found.append(over)
    found += _dtypes(budget, rank, events)
    asked = {
        Phase.FORWARD: True,
        Phase.BACKWARD: _goes_back_whole(case),
        Phase.STEP: case.step or updates,
    }
    due = {what: least for what, least in budget.at_least.items() if asked[Phase(what[0])]}
    return [*found, *_paths_not_taken(due, case, rank, events, counted or {}, steps)]


def _over(
    name: str,
    kind: Kind,
    rank: int,
    allowed: float,
    measured: float,
    detail: OverSaved | OverBudget,
) -> Mismatch:
    allowed, measured = float(allowed), float(measured)
    return Mismatch(name, kind, rank, None, allowed, measured, measured - allowed, 0.0, detail)


def _paths_not_taken(
    wanted: Mapping[tuple[str, str], int],
    case: Case,
    rank: int,
    events: Sequence[Event],
    counted: Mapping[tuple[Phase, str], int],
    steps: int,
) -> Iterator[Mismatch]:
    for (phase, name), least in wanted.items():
        times = sum(event.phase == phase and event.op == name for event in events)
        times += counted.get((Phase(phase), name), 0)
        # an optimizer leaves out the steps in which a scaled loss overflows
        due = least if phase == Phase.STEP else least * steps * case.microbatches
        if times < due:
            detail = PathNotTaken(name, Phase(phase), times, due)
            yield Mismatch("witness", Kind.WITNESS, rank, detail=detail)


def _goes_back_whole(case: Case) -> bool:
    """Whether nothing of a backward may be left out."""
    return case.gradients != "none" and case.mode not in (*FREEZING, "constant")


def _dtypes(budget: Budget, rank: int, events: Sequence[Event]) -> Iterator[Mismatch]:
    """The first use of each op in another dtype than the budget's."""
    due = dict(budget.dtypes)
    for event in events:
        what = (event.phase, event.op)
        if what in due and event.dtype != due[what]:
            wrong = WrongDtype(event.op, event.phase, event.dtype, due.pop(what), event.where)
            yield Mismatch("dtype", Kind.COLLECTIVE, rank, detail=wrong)
