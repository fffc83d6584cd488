"""The sentences of `causes.structure`."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path

from tpcheck.causes import structure as causes
from tpcheck.comms import frames
from tpcheck.errors import counted
from tpcheck.evidence import Misheld, WrongDtype
from tpcheck.report.diagnoses.where import called
from tpcheck.report.evidence import ending, misheld, said, too_long
from tpcheck.vocabulary import Fault, Impasse, Lost


@singledispatch
def sentence(cause: causes.OfStructure) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.RankDied) -> str:
    died = "died: " if cause.lost is Lost.ENDED else ""
    return f"rank {cause.rank} {died}{ending(cause.status, cause.lost)}"


@sentence.register
def _(cause: causes.RanksRaised) -> str:
    some = f"rank {cause.ranks[0]}" if cause.ranks else "a rank"
    who = "every rank" if cause.every else some
    row = f"{cause.row}: " if cause.row else ""
    return f"{row}{who} raised {cause.type}: {cause.text} (in {cause.phase})"


@sentence.register
def _(cause: causes.GivenUp) -> str:
    waits_in = cause.waiting_in.get(cause.rank)
    collective = waits_in or "no collective"
    if cause.seen.why is Impasse.PEER_FINISHED:
        waits = f"rank {cause.rank} {said(cause.seen)}: {collective}"
        if cause.seen.parted is None:
            return waits
        mine, theirs = cause.seen.parted
        ways = f"rank {mine.rank} enters {mine.collective} where rank {theirs.rank} enters "
        return f"{ways}{theirs.collective}; in the end {waits}"
    late = cause.seen.why is Impasse.TOO_LONG
    what = too_long(cause.seen.seconds) if late else said(cause.seen)
    at = _at(cause.seen.scene.stack or "") if waits_in is None else ""
    return f"{what}; rank {cause.rank} is in {collective}{at}"


def _at(stack: str) -> str:
    """The line of the user's code that a rank is at."""
    return next((f", at {Path(file).name}:{line}" for file, line in frames.of_stack(stack)), "")


@sentence.register
def _(cause: causes.CollectivesDiffer) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.CollectiveInDtype) -> str:
    due = cause.expected_dtype
    return str(said(WrongDtype(cause.op, cause.phase, cause.dtype, due, cause.where)))


@sentence.register
def _(cause: causes.PathLeftOut) -> str:
    return f"the path was not taken: {said(cause.seen)}"


@sentence.register
def _(cause: causes.SendsTooMuch) -> str:
    ran = ", ".join(f"{count} × {op}" for op, count in cause.ran.items())
    passes = counted(cause.passes, "microbatch", "microbatches")
    return (
        f"{cause.phase} sends {cause.sent:g} elements per rank, the budget is {cause.allowed:g} "
        f"({ran} in {passes})"
    )


@sentence.register
def _(cause: causes.DrawnOtherwise) -> str:
    return f"{cause.name}: {said(cause.seen)}"


@sentence.register
def _(cause: causes.SavesTooMuch) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.OutsideOfItsTensors) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.IntegersWrap) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.PromiseUnkept) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.ProgramsRace) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.DoesMore) -> str:
    return f"{cause.tensor}: {said(cause.seen)}"


@sentence.register
def _(cause: causes.OpMisregistered) -> str:
    return str(said(cause.seen))


@sentence.register
def _(cause: causes.NotAsLaidOut) -> str:
    names, held = ", ".join(cause.tensors), cause.seen
    match held.fault:
        case Fault.WHOLE:
            return f"{names}: {_replicated(held)}"
        case Fault.STORAGE:
            return f"{names}: {_kept(held)}, which stays in memory"
        case Fault.SHAPE:
            has, due = list(held.shape or ()), list(held.expected_shape or ())
            says = f"{cause.first} has the local shape {has}, the layout says {due}"
            return f"{says}{_unmarked(held, has, due)}"
        case Fault.PLACEMENT:
            return f"{cause.first}: {held.placement} is not the layout's {held.expected_placement}"
    return str(misheld(cause.first, held))


def _unmarked(held: Misheld, has: list[int], due: list[int]) -> str:
    """What is said of a part where more is due, and nothing on the tensor says that it is one."""
    differ = [(own, whole) for own, whole in zip(has, due, strict=False) if own != whole]
    apart = len(has) == len(due) and len(differ) == 1 and differ[0][0] < differ[0][1]
    if held.placement is not None or not apart:
        return ""
    return "; a shard without a mark, which gradient norms and checkpoints take for a whole?"


def _kept(held: Misheld) -> str:
    if held.inside is not None:
        return f"the unsharded tensor lies in the storage of {held.inside}"
    if held.what is None:
        return "a view into the unsharded tensor"
    if not held.expected:
        return f"the {held.what} is the unsharded tensor"
    return f"the {held.what} is a view into that of the unsharded tensor"


def _replicated(held: Misheld) -> str:
    if held.axes is not None:
        return f"replicated along {held.axes}, the layout shards it"
    has, due = list(held.shape or ()), list(held.expected_shape or ())
    return f"replicated {has}, the layout shards it {due}"


@sentence.register
def _(cause: causes.PlanAtFault) -> str:
    return cause.finding


@sentence.register
def _(cause: causes.NothingKnown) -> str:
    if cause.subject is None:
        return "no mismatch was left to explain"
    return f"{called(cause.subject)} is wrong; none of the known causes fits"


@sentence.register
def _(cause: causes.DiagnosisFailed) -> str:
    where = f"{cause.type} in {cause.function} of {cause.file}"
    return f"the diagnosis itself failed ({where}: {cause.text!r}): please report it"
