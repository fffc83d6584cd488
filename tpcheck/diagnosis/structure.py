"""Causes that need no values: what ranks did, what they hold, what they communicated.

Asked in this order, since each may have the ones after it as its consequence: a rank that died
leaves its peers waiting, one that can't load its shard does, too; a rank that is given up in a
collective makes others raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpcheck.causes.structure import (
    CollectiveInDtype,
    CollectivesDiffer,
    DoesMore,
    DrawnOtherwise,
    GivenUp,
    IntegersWrap,
    NotAsLaidOut,
    OpMisregistered,
    OutsideOfItsTensors,
    PathLeftOut,
    PlanAtFault,
    ProgramsRace,
    PromiseUnkept,
    RankDied,
    RanksRaised,
    SavesTooMuch,
    SendsTooMuch,
)
from tpcheck.evidence import (
    Died,
    MaskOfOtherShape,
    MasksCounted,
    MessagesLost,
    Misheld,
    Misregistered,
    OfMask,
    OtherRate,
    OverBudget,
    OverSaved,
    PathNotTaken,
    PlanFault,
    Race,
    Raised,
    Refused,
    Stray,
    Stuck,
    TracesDiffer,
    Undisciplined,
    Unkept,
    Wrapped,
    WrongDtype,
)
from tpcheck.verdict import CaseResult, Diagnosis, Mismatch
from tpcheck.vocabulary import Code, Fault, Habit, Impasse, Kind, Phase


def by_structure(result: CaseResult) -> Diagnosis | None:
    """The cause that the evidence says without any values; None where only values are wrong."""
    by_kind: dict[Kind, list[Mismatch]] = {}
    for mismatch in result.causes:
        by_kind.setdefault(mismatch.kind, []).append(mismatch)
    for kind, named in _IN_ORDER.items():
        if kind in by_kind:
            return named(result, by_kind[kind])
    return None


def _crash(result: CaseResult, crashes: Sequence[Mismatch]) -> Diagnosis:
    first = crashes[0]
    assert isinstance(first.detail, Died), first
    return Diagnosis(Code.RANK_CRASH, RankDied(first.rank, first.detail.status, first.detail.lost))


def _communication(result: CaseResult, over: Sequence[Mismatch]) -> Diagnosis:
    first = over[0]
    assert isinstance(first.detail, OverBudget), first
    phase, ran, passes = first.detail.phase, first.detail.ran, first.detail.passes
    sent, allowed = first.actual or 0.0, first.expected or 0.0
    cause = SendsTooMuch(phase, sent, allowed, ran, passes)
    return Diagnosis(Code.EXTRA_COMMUNICATION, cause)


def _saved(result: CaseResult, over: Sequence[Mismatch]) -> Diagnosis:
    detail = over[0].detail
    assert isinstance(detail, OverSaved), over[0]
    return Diagnosis(Code.UNCLASSIFIED, SavesTooMuch(detail))


def _collective(result: CaseResult, seen: Sequence[Mismatch]) -> Diagnosis:
    first = seen[0]
    match first.detail:
        case WrongDtype(op, phase, dtype, due, where):
            wrong = CollectiveInDtype(op, phase, dtype, due, where)
            return Diagnosis(Code.PRECISION_LOSS, wrong)
        case Refused() | TracesDiffer() | MessagesLost():
            differ = CollectivesDiffer(first.rank, first.detail)
            return Diagnosis(Code.COLLECTIVE_MISMATCH, differ)
    raise AssertionError(first)


def _witness(result: CaseResult, seen: Sequence[Mismatch]) -> Diagnosis:
    detail = seen[0].detail
    assert isinstance(detail, PathNotTaken), seen[0]
    return Diagnosis(Code.PATH_NOT_TAKEN, PathLeftOut(detail))


def _hang(result: CaseResult, hangs: Sequence[Mismatch]) -> Diagnosis:
    first = min(hangs, key=_at_second_hand)
    assert isinstance(first.detail, Stuck), first
    finished = first.detail.why is Impasse.PEER_FINISHED
    code = Code.COLLECTIVE_MISMATCH if finished else Code.DEADLOCK
    waiting = {m.rank: m.detail.waits_in for m in hangs if isinstance(m.detail, Stuck)}
    return Diagnosis(code, GivenUp(first.rank, first.detail, waiting))


def _at_second_hand(hang: Mismatch) -> tuple[bool, ...]:
    """How much of a hang follows from others', to sort by: what waits for a rank that has finished
    says most, and then, at the time limit, what is at work and not in a collective."""
    stuck = hang.detail
    assert isinstance(stuck, Stuck), hang
    late = stuck.why is Impasse.TOO_LONG
    waits = late and bool(stuck.absent), late and stuck.waits_in is not None
    return stuck.why is not Impasse.PEER_FINISHED, *waits


def _exception(result: CaseResult, raised: Sequence[Mismatch]) -> Diagnosis:
    first = raised[0].detail
    assert isinstance(first, Raised), raised[0]
    ranks = tuple(sorted(m.rank for m in raised))
    every = len(ranks) == (result.saving or result.case).world_size
    phase = first.scene.phase
    row = first.row if phase is Phase.BUILD else None
    code = Code.ORDER_OF_PARALLELISMS if row else Code.RANK_CRASH
    return Diagnosis(code, RanksRaised(ranks, every, first.type, first.text, phase, row))


def _sharding(result: CaseResult, faults: Sequence[Mismatch]) -> Diagnosis:
    first = _most_telling(faults)
    if isinstance(first.detail, PlanFault):
        findings = [m.detail for m in faults if isinstance(m.detail, PlanFault)]
        named = tuple(dict.fromkeys(name for finding in findings for name in finding.names))
        return Diagnosis(first.detail.code, PlanAtFault(named, first.detail.reason))
    assert isinstance(first.detail, Misheld), first
    names = tuple(sorted({m.tensor for m in faults}))
    cause = NotAsLaidOut(names, first.tensor, first.detail)
    return Diagnosis(_CODES[first.detail.fault], cause)


def _most_telling(faults: Sequence[Mismatch]) -> Mismatch:
    """The first; where that is a parameter that its rank lacks, one that no rank has or, if there
    is none, the rank that has it and should not."""
    first = faults[0]
    if not _is(first, Fault.MISSING):
        return first
    misplaced = {m.tensor: m for m in faults if _is(m, Fault.ELSEWHERE)}
    lost = (m for m in faults if _is(m, Fault.MISSING) and m.tensor not in misplaced)
    return next(lost, None) or misplaced[first.tensor]


def _is(mismatch: Mismatch, fault: Fault) -> bool:
    return isinstance(mismatch.detail, Misheld) and mismatch.detail.fault is fault


def _memory(result: CaseResult, strays: Sequence[Mismatch]) -> Diagnosis:
    detail = strays[0].detail
    if isinstance(detail, Wrapped):
        return Diagnosis(Code.INTEGER_OVERFLOW, IntegersWrap(detail))
    if isinstance(detail, Unkept):
        return Diagnosis(Code.BROKEN_PROMISE, PromiseUnkept(detail))
    assert isinstance(detail, Stray), strays[0]
    return Diagnosis(Code.OUT_OF_BOUNDS, OutsideOfItsTensors(detail))


def _race(result: CaseResult, races: Sequence[Mismatch]) -> Diagnosis:
    detail = races[0].detail
    assert isinstance(detail, Race), races[0]
    return Diagnosis(Code.RACE, ProgramsRace(detail))


def _discipline(result: CaseResult, broken: Sequence[Mismatch]) -> Diagnosis:
    first = broken[0]
    assert isinstance(first.detail, Undisciplined), first
    if first.detail.habit in _BY_CHANCE:
        first = next(filter(goes_by_address, broken), first)
    detail = first.detail
    assert isinstance(detail, Undisciplined), first
    return Diagnosis(_HABITS[detail.habit], DoesMore(first.tensor, detail))


def goes_by_address(wrong: Mismatch) -> bool:
    """Whether it is of a call that gives what something else at an address had."""
    detail = wrong.detail
    return isinstance(detail, Undisciplined) and detail.habit is Habit.GOES_BY_ADDRESS


def _custom_op(result: CaseResult, failed: Sequence[Mismatch]) -> Diagnosis:
    detail = failed[0].detail
    assert isinstance(detail, Misregistered), failed[0]
    return Diagnosis(Code.CUSTOM_OP, OpMisregistered(detail))


def _mask(result: CaseResult, seen: Sequence[Mismatch]) -> Diagnosis:
    first = seen[0]
    assert isinstance(first.detail, OfMask), first
    otherwise = isinstance(first.detail, OtherRate | MaskOfOtherShape | MasksCounted)
    code = Code.UNCLASSIFIED if otherwise else Code.RNG_NOT_COORDINATED
    return Diagnosis(code, DrawnOtherwise(first.tensor, first.detail))


_HABITS = {
    Habit.CHANGES_INPUT: Code.INPUT_OVERWRITTEN,
    Habit.CHANGES_COTANGENT: Code.INPUT_OVERWRITTEN,
    Habit.REUSES_OUTPUT: Code.STALE_BUFFER,
    Habit.REUSES_GRADIENT: Code.STALE_BUFFER,
    Habit.REUSES_SAVED: Code.STALE_BUFFER,
    Habit.NOT_REPEATED: Code.NOT_REPEATABLE,
    Habit.GOES_BY_ADDRESS: Code.STALE_BUFFER,
    Habit.SECOND_BACKWARD: Code.SECOND_BACKWARD,
    Habit.SHARED_INPUT: Code.SHARED_INPUT,
    Habit.TRAINS_FROZEN: Code.NOT_FROZEN,
}
#: What a call that goes by addresses is by chance, too, where it meets one that something else had.
_BY_CHANCE = (Habit.NOT_REPEATED, Habit.SECOND_BACKWARD, Habit.SHARED_INPUT)

_CODES = {
    Fault.WHOLE: Code.PARAMETER_NOT_SHARDED,
    Fault.STORAGE: Code.PARAMETER_NOT_SHARDED,
    Fault.READ: Code.PARAMETER_NOT_SHARDED,
    Fault.NONE_SHARDED: Code.PARAMETER_NOT_SHARDED,
    Fault.SHAPE: Code.WRONG_PLACEMENT,
    Fault.PLACEMENT: Code.WRONG_PLACEMENT,
    Fault.ELSEWHERE: Code.WRONG_PLACEMENT,
    Fault.MISSING: Code.PLAN_ENTRY_UNMATCHED,
    Fault.UNEXPECTED: Code.PLAN_ENTRY_UNMATCHED,
}

_IN_ORDER: dict[Kind, Callable[[CaseResult, Sequence[Mismatch]], Diagnosis]] = {
    Kind.CRASH: _crash,
    Kind.SHARDING: _sharding,  # a rank that can't load its shard leaves its peers waiting
    Kind.COMMUNICATION_BYTES: _communication,
    Kind.SAVED_BYTES: _saved,
    Kind.COLLECTIVE: _collective,
    Kind.HANG: _hang,
    Kind.MEMORY: _memory,
    Kind.EXCEPTION: _exception,
    Kind.MASK: _mask,
    Kind.RACE: _race,
    Kind.DISCIPLINE: _discipline,
    Kind.CUSTOM_OP: _custom_op,
    Kind.WITNESS: _witness,
}
