"""Causes that need no values: what ranks did, what they hold, what they communicated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.causes.where import Subject
from tpcheck.evidence import (
    MessagesLost,
    Misheld,
    Misregistered,
    OfMask,
    OverSaved,
    PathNotTaken,
    Race,
    Refused,
    Stray,
    Stuck,
    TracesDiffer,
    Undisciplined,
    Unkept,
    Wrapped,
)
from tpcheck.vocabulary import Lost, Phase


@dataclass(frozen=True)
class RankDied:
    """A rank's process ended, or was lost otherwise: `status` is its exit code, or minus the signal
    that killed it."""

    rank: int
    status: int | None
    lost: Lost = Lost.ENDED


@dataclass(frozen=True)
class RanksRaised:
    """Ranks raised by themselves, not because another one failed.

    Args:
        every: whether all ranks of the case did.
        type, text: of the first one's exception.
        row: the order of parallelisms that torch refuses with it, where it is one.
    """

    ranks: tuple[int, ...]
    every: bool
    type: str
    text: str
    phase: Phase | None
    row: str | None = None


@dataclass(frozen=True)
class GivenUp:
    """Ranks wait in collectives that others never enter, or the case ran into its time limit.

    Args:
        rank, seen: the first of them, and why it was given up.
        waiting_in: rank → the collective in which it waits, where it does in one.
    """

    rank: int
    seen: Stuck
    waiting_in: Mapping[int, str | None]


@dataclass(frozen=True)
class CollectivesDiffer:
    """Ranks entered, or ran, different collectives on one group; `rank` is one that saw it."""

    rank: int
    seen: Refused | TracesDiffer | MessagesLost


@dataclass(frozen=True)
class CollectiveInDtype:
    """A collective ran in another dtype than the budget's."""

    op: str
    phase: Phase
    dtype: str
    expected_dtype: str
    where: str = ""


@dataclass(frozen=True)
class PathLeftOut:
    """What shows that a path was taken ran too rarely."""

    seen: PathNotTaken


@dataclass(frozen=True)
class SendsTooMuch:
    """Values are right, and a rank sends more than the budget allows.

    Args:
        sent, allowed: elements per rank.
        ran: op → how often, in so many `passes`.
    """

    phase: Phase
    sent: float
    allowed: float
    ran: Mapping[str, int]
    passes: int


@dataclass(frozen=True)
class SavesTooMuch:
    """Values are right, and more is saved for backward than the budget allows."""

    seen: OverSaved


@dataclass(frozen=True)
class NotAsLaidOut:
    """Parameters are not held as the layout says: `seen.fault` says how.

    Args:
        tensors: all parameters with such a mismatch, of whatever fault.
        first: the one that `seen` is about.
    """

    tensors: tuple[str, ...]
    first: str
    seen: Misheld


@dataclass(frozen=True)
class PlanAtFault:
    """The check's plan is wrong, or was not followed.

    Args:
        tensors: the modules or parameters that all its findings are about.
        finding: the first finding, as `tpcheck audit` prints it.
    """

    tensors: tuple[str, ...]
    finding: str


@dataclass(frozen=True)
class OutsideOfItsTensors:
    """A kernel accesses what is in none of the tensors that it was given."""

    seen: Stray


@dataclass(frozen=True)
class IntegersWrap:
    """A kernel computes an integer that does not fit."""

    seen: Wrapped


@dataclass(frozen=True)
class PromiseUnkept:
    """A kernel promises the compiler what does not hold."""

    seen: Unkept


@dataclass(frozen=True)
class ProgramsRace:
    """What a kernel leaves depends on the order of its programs."""

    seen: Race


@dataclass(frozen=True)
class DoesMore:
    """A call does what its result does not show; `tensor` is the one that shows it."""

    tensor: str
    seen: Undisciplined


@dataclass(frozen=True)
class OpMisregistered:
    """An op of `torch.library` is right when it is called, and not what it is registered as."""

    seen: Misregistered


@dataclass(frozen=True)
class DrawnOtherwise:
    """A random mask, `name`, is not drawn as the reference draws it."""

    name: str
    seen: OfMask


@dataclass(frozen=True)
class NothingKnown:
    """None of the other causes fits; `subject` is what went wrong first, where anything is left
    to explain."""

    subject: Subject | None


@dataclass(frozen=True)
class DiagnosisFailed:
    """A hypothesis raised: a fault of tpcheck's, or of a reference under altered numbers.

    Args:
        type, text: of the exception.
        function, file: where it was raised.
    """

    type: str
    text: str
    function: str
    file: str


OfStructure = (
    RankDied
    | RanksRaised
    | GivenUp
    | CollectivesDiffer
    | CollectiveInDtype
    | PathLeftOut
    | SendsTooMuch
    | SavesTooMuch
    | NotAsLaidOut
    | PlanAtFault
    | OutsideOfItsTensors
    | IntegersWrap
    | PromiseUnkept
    | ProgramsRace
    | DoesMore
    | OpMisregistered
    | DrawnOtherwise
    | NothingKnown
    | DiagnosisFailed
)
