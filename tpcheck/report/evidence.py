"""The sentence of each piece of evidence: what a mismatch says besides its numbers."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from tpcheck.errors import counted
from tpcheck.evidence import (
    Absent,
    Died,
    Elsewhere,
    Entered,
    Evidence,
    MessagesLost,
    Misheld,
    Misregistered,
    OfMask,
    OverSaved,
    PathNotTaken,
    PlanFault,
    Race,
    Raised,
    Ran,
    Refused,
    Stray,
    Stuck,
    TracesDiffer,
    Undisciplined,
    Unkept,
    Wrapped,
    WrongDtype,
    WrongForm,
)
from tpcheck.report.masks import drawn
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Access, Fault, Habit, Impasse, Kind, Lost, OpTest


def reason(mismatch: Mismatch) -> str | None:
    """What happened, in a sentence; None of evidence that its fields say completely."""
    detail = mismatch.detail
    if isinstance(detail, Absent):
        if mismatch.kind is Kind.OPTIMIZER_STATE:
            return "the candidate's optimizer keeps no such state of this parameter"
        missing = (
            "no gradient here (None)" if mismatch.kind.is_gradient else "not returned this output"
        )
        return f"the candidate has {missing}"
    if isinstance(detail, Misheld):
        return misheld(mismatch.tensor, detail)
    return None if detail is None else said(detail)


def said(detail: Evidence) -> str | None:
    if isinstance(detail, OfMask):
        return drawn(detail)
    match detail:
        case WrongForm(form, expected):
            return f"{form}, expected a dense {expected} tensor"
        case PlanFault(reason=text) | Raised(text=text):
            return text
        case Died():
            return ending(detail.status, detail.lost)
        case Stuck():
            return _impasse(detail)
        case Refused():
            return _circle(detail.circle) if detail.circle else _refused(detail)
        case TracesDiffer():
            parts = ", ".join(_ran(rank, ran) for rank, ran in detail.first)
            return f"collective {detail.step} of the group: {parts}"
        case MessagesLost(source, target, sent, received):
            return (
                f"rank {source} sent {counted(sent, 'message')} to rank {target}, which received "
                f"{received}"
            )
        case PathNotTaken(name, phase, ran, due):
            return f"{name} ran {counted(ran, 'time')} in {phase}, of {due} due"
        case WrongDtype(op, phase, dtype, due, where):
            at = f" at {where}" if where else ""
            return f"{op} in {phase} runs in {dtype}, {due} is due{at}"
        case OverSaved(saved, allowed):
            return f"{counted(saved, 'element')} saved for backward, of which {allowed} would do"
        case Stray():
            return _stray(detail)
        case Wrapped(kernel, line, program, operation, bits):
            return f"{kernel}, line {line}: {operation} of int{bits} overflows in program {program}"
        case Unkept():
            return _unkept(detail)
        case Race():
            return _race(detail)
        case Undisciplined():
            return _habit(detail)
        case Misregistered(op, test, type_, text):
            return f"{op} {_OF_TEST[test]} ({test} of torch.library.opcheck): {type_}: {text}"
    return None


def _stray(detail: Stray) -> str:
    access, lanes = detail.access, counted(detail.lanes, "lane")
    near = "none is near"
    if detail.tensor:
        near = f"{counted(detail.offset, 'byte')} from the start of {detail.tensor}"
    return (
        f"{detail.kernel}, line {detail.line}: program {detail.program} {access}s outside of every "
        f"tensor of its launch ({near}, {lanes})"
    )


def _unkept(detail: Unkept) -> str:
    values = ", ".join(map(str, detail.values))
    what = f"tl.{detail.promise} of {values}" if values else f"tl.{detail.promise}"
    return (
        f"{detail.kernel}, line {detail.line}: {what} is promised and does not hold in program "
        f"{detail.program}"
    )


def _race(detail: Race) -> str:
    first, second = detail.programs
    does = "stores into" if detail.access is Access.STORE else "has an atomic in"
    return (
        f"{detail.kernel}, line {detail.line}: program {first} {does} {detail.tensor} "
        f"({counted(detail.offset, 'byte')} from its start) where program {second} "
        f"{_DOES[detail.other]}"
    )


_DOES = {
    Access.LOAD: "loads",
    Access.STORE: "stores something else",
    Access.ATOMIC: "has an atomic",
}


def _habit(detail: Undisciplined) -> str:
    count = "" if detail.elements is None else counted(detail.elements, "element")
    beside = f"{counted(detail.beside, 'byte')} of memory beside it" if detail.beside else ""
    what = " and ".join(part for part in (count, beside) if part)
    have = "has" if what and detail.elements == 1 and not beside else "have"
    return {
        Habit.CHANGES_INPUT: f"the call changes {what}",
        Habit.CHANGES_COTANGENT: f"backward changes {what} of the upstream gradient",
        Habit.REUSES_OUTPUT: f"a later call changes {what} of what this one returned",
        Habit.REUSES_GRADIENT: f"another call's backward changes {what} of the gradient that this "
        "one's returned",
        Habit.TRAINS_FROZEN: f"backward leaves a gradient, {what} of which are not zero, of a "
        "parameter that is frozen",
        Habit.REUSES_SAVED: f"{what} of the gradient {have} other bits where another call comes "
        "before backward: it writes over what this one has kept for it",
        Habit.NOT_REPEATED: f"run again, {what} {have} other bits"
        if what
        else f"run again, it {detail.raised}",
        Habit.GOES_BY_ADDRESS: "where inputs have changed in place since a call, or others have "
        f"their memory or their `id`, {what} are not what other tensors with these numbers give",
        Habit.SECOND_BACKWARD: f"in a second backward {what} of the gradient {have} other bits"
        if what
        else f"a second backward through the retained graph {detail.raised}",
        Habit.SHARED_INPUT: f"where inputs have another consumer, {what} of the gradient {have} "
        "other bits"
        if what
        else f"where inputs have another consumer, it {detail.raised}",
    }[detail.habit]


_OF_TEST = {
    OpTest.SCHEMA: "does not do what its schema says",
    OpTest.AUTOGRAD: "has its backward where autograd does not look for it",
    OpTest.FAKE: "has no fake kernel that says what it gives",
    OpTest.AOT_DISPATCH: "does something else when it is compiled",
}


def misheld(name: str, detail: Misheld) -> str | None:
    if detail.fault is Fault.MISSING:
        instead = (
            f": its build(case, mesh) returned {detail.built}, not a module" if detail.built else ""
        )
        return f"the candidate has no {name!r}{instead}"
    if detail.fault is Fault.UNEXPECTED:
        return f"the reference has no parameter {name!r}"
    if detail.fault is Fault.READ and None not in (detail.storage, detail.expected):
        return (
            f"the loader reads {detail.storage:,} bytes of the checkpoint's files; the rank's part "
            f"is {detail.expected:,}"
        )
    if detail.fault is Fault.NONE_SHARDED:
        return "no parameter is sharded along tp, and the layout declares none as replicated"
    return f"{name} {place(detail.elsewhere)}" if detail.elsewhere else None


def place(detail: Elsewhere) -> str:
    """`is on the ranks of pp=1; the layout has it on those of pp=0 only`."""
    return f"is on the ranks of {_axes(detail.here)}; the layout has it on those of " + (
        f"{_axes(detail.due)} only"
    )


def _axes(coordinates: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={coordinate}" for axis, coordinate in coordinates.items())


def ending(status: int | None, lost: Lost = Lost.ENDED) -> str:
    """How a process ended: `killed by SIGKILL`, `exit code 1`; or what it did to its socket."""
    if lost is Lost.CLOSED:
        return "closed its socket to the driver"
    if lost is Lost.GARBLED:
        return "wrote to its socket to the driver"
    if status is None:
        return "gone"
    return f"exit code {status}" if status >= 0 else f"killed by {_signal(-status)}"


def _signal(number: int) -> str:
    """`SIGKILL`, `SIGRTMIN+6`: real-time signals but the first and the last have no name of their
    own."""
    names = {int(known): known.name for known in signal.Signals}
    if number not in names and signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return names.get(number, f"signal {number}")


def _impasse(detail: Stuck) -> str:
    return {
        Impasse.PEER_FAILED: "a peer failed",
        Impasse.PEER_FINISHED: f"waits for rank {detail.peer}, which finished without this "
        "collective",
        Impasse.PEER_ABSENT: f"waits for rank {detail.peer}, which has not come to this collective",
        Impasse.AT_WORK: "waits for no other, and was given up with those that do",
        Impasse.TOO_LONG: _beyond_the_limit(detail),
        Impasse.EVERY_RANK_WAITS: _all_wait(detail.finished),
        Impasse.STILL_BUILDING: f"build took longer than {detail.seconds or 0:g} s",
    }[detail.why]


def too_long(seconds: float | None) -> str:
    return f"the case took longer than {seconds or 0:g} s"


def _beyond_the_limit(detail: Stuck) -> str:
    late = too_long(detail.seconds)
    if detail.absent:
        have = "have" if len(detail.absent) > 1 else "has"
        ranks = f"rank{'s' * (len(detail.absent) > 1)} {_listed(detail.absent)}"
        return f"waits for {ranks}, which {have} not come to this collective, and {late}"
    return late if detail.waits_in else f"is in no collective, and {late}"


def _all_wait(finished: Sequence[int]) -> str:
    have = "have" if len(finished) > 1 else "has"
    others = f" but {_listed(finished)}, which {have} finished," if finished else ""
    return f"every rank{others} waits for another"


def _listed(ranks: Sequence[int]) -> str:
    return ",".join(map(str, ranks))


def _refused(detail: Refused) -> str:
    what = f"collective {detail.step} of ranks {list(detail.members)}"
    if detail.message and len(detail.members) == 2:
        source, target = detail.members
        what = f"message {detail.step} from rank {source} to rank {target}"
    sends = ""
    if (uneven := detail.uneven) is not None:
        sends = (
            f"rank {uneven.source} sends {counted(uneven.sent, 'element')} to rank "
            f"{uneven.target}, which expects {uneven.expected}: "
        )
    mine, theirs = detail.mine, detail.theirs
    enters = f"rank {mine.rank} enters {mine.collective}" if mine else "a rank enters another"
    entered = f"rank {theirs.rank} entered {theirs.collective}" if theirs else "than its peer"
    return f"{what}: {sends}{enters}, {entered}"


def _circle(circle: tuple[Entered, ...]) -> str:
    waits = [
        f"waits in {entered.collective} for rank {awaited.rank}"
        for entered, awaited in zip(circle, [*circle[1:], circle[0]], strict=True)
    ]
    return f"rank {circle[0].rank} {', which '.join(waits)}"


def _ran(rank: int, ran: Ran | None) -> str:
    if ran is None:
        return f"rank {rank} ran none"
    of = f" of {ran.module}" if ran.module else ""
    return f"rank {rank} ran {ran.collective}{of} at {ran.where}"
