"""What a mismatch's numbers don't say: a closed union of small classes, `Evidence`.

Data only. `report/evidence.py` has the sentence of each, `report/data.py` its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.vocabulary import Code, Fault, Impasse, Kind, Phase

# ---- a tensor


@dataclass(frozen=True)
class Values:
    """Elements outside their bounds.

    Args:
        wrong, of: how many elements, of how many.
        norm_error, norm_bound: of the whole tensor, in σ, where that is outside.
        gain_error, gain_bound: the common scale error, where that is outside.
        dtype, expected_dtype: where the dtype is another.
        nan: how many elements are NaN, where any is.
    """

    wrong: int
    of: int
    norm_error: float | None = None
    norm_bound: float | None = None
    gain_error: float | None = None
    gain_bound: float | None = None
    dtype: str | None = None
    expected_dtype: str | None = None
    nan: int | None = None


@dataclass(frozen=True)
class Absent:
    """The candidate has no such gradient (None), or returned no such output.

    Args:
        returned, wanted: the names of all outputs, where an output is missing.
    """

    returned: tuple[str, ...] | None = None
    wanted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class WrongShape:
    """The local tensor has another shape than its slice of the reference."""

    shape: tuple[int, ...]
    expected_shape: tuple[int, ...]


@dataclass(frozen=True)
class Elsewhere:
    """A rank has what the layout has on other ranks.

    Args:
        here, due: mesh axis → coordinate: of this rank, and of those that are to have it.
    """

    here: Mapping[str, int]
    due: Mapping[str, int]


@dataclass(frozen=True)
class ReplicasDiffer:
    """Ranks that must hold the same bits hold different ones.

    Args:
        of: the kind of the tensor.
        ranks: all that must agree; `differ_from_first`: those that don't agree with the first.
    """

    of: Kind
    ranks: tuple[int, ...]
    differ_from_first: tuple[int, ...]


# ---- a parameter as it is held


@dataclass(frozen=True)
class Misheld:
    """A parameter that is not held as the layout says; what is None does not apply to the fault.

    Args:
        shape, expected_shape: local ones.
        axes: mesh axes along which it should be sharded, as in `dp, tp`.
        storage, expected: bytes that the shard keeps alive, and its own.
        placement, expected_placement: as the candidate declares it, and the layout's.
        elsewhere: where this rank is, and where the layout has the parameter.
        parameters: how many there are, none of which is sharded.
        built: what the candidate's `build` returned, where that is not a module.
    """

    fault: Fault
    shape: tuple[int, ...] | None = None
    expected_shape: tuple[int, ...] | None = None
    axes: str | None = None
    storage: int | None = None
    expected: int | None = None
    placement: str | None = None
    expected_placement: str | None = None
    elsewhere: Elsewhere | None = None
    parameters: int | None = None
    built: str | None = None


@dataclass(frozen=True)
class PlanFault:
    """A finding of an audit: the check's plan is wrong, or was not followed.

    Args:
        reason: the finding's sentence, as `tpcheck audit` prints it.
        names: the modules or parameters that it is about.
    """

    code: Code
    reason: str
    names: tuple[str, ...]


# ---- what ranks did


@dataclass(frozen=True)
class Scene:
    """Where a rank was when it failed; None where that is not known.

    Args:
        last: the collectives that it entered last, oldest first.
        stack: the Python stack.
        phase, module: what it was at, and in which module of the candidate.
        consequence: whether it failed because another rank did.
        peers, stacks: `last` and `stack` of every rank that failed, by rank.
    """

    last: tuple[str, ...] | None = None
    stack: str | None = None
    phase: Phase | None = None
    module: str | None = None
    consequence: bool | None = None
    peers: Mapping[str, tuple[str, ...]] | None = None
    stacks: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Raised:
    """A rank raised.

    Args:
        type, text: of the exception.
        communicating: whether it was raised by a collective.
        row: the order of parallelisms that torch refuses with it (`order`), where it is one.
    """

    type: str
    text: str
    scene: Scene = Scene()
    communicating: bool = False
    row: str | None = None


@dataclass(frozen=True)
class Died:
    """A rank's process ended.

    Args:
        status: its exit code, or minus the signal that killed it; None where nobody knows.
        log: the end of what it printed.
    """

    status: int | None
    log: str = ""
    scene: Scene = Scene()


@dataclass(frozen=True)
class Stuck:
    """A rank was given up.

    Args:
        why: what was seen.
        absent: the ranks that have not entered the collective in which it waits.
        peer: the rank that finished without that collective.
        seconds: the time limit that the case ran into.
    """

    why: Impasse
    absent: tuple[int, ...] = ()
    peer: int | None = None
    seconds: float | None = None
    scene: Scene = Scene()


@dataclass(frozen=True)
class Entered:
    """A collective, in a line, and the rank that entered it."""

    rank: int
    collective: str


@dataclass(frozen=True)
class Uneven:
    """`source` sends so many elements to `target`, which expects another number."""

    source: int
    target: int
    sent: int
    expected: int


@dataclass(frozen=True)
class Refused:
    """Two ranks are in different collectives as the same step of a group, or wait in a circle.

    Args:
        mine, theirs: what this rank was about to enter, and what a peer has entered.
        step: from 1; of the group `members`, or of the messages from its first to its second rank.
        message: whether it is a message between two ranks.
        uneven: what one rank sends and the other does not expect, of an all-to-all.
        circle: instead of all this: each waits for the next, and the last for the first.
    """

    mine: Entered | None = None
    theirs: Entered | None = None
    step: int = 0
    members: tuple[int, ...] = ()
    message: bool = False
    uneven: Uneven | None = None
    circle: tuple[Entered, ...] = ()
    scene: Scene = Scene()


@dataclass(frozen=True)
class Ran:
    """One collective of a trace, with the module and line of the candidate."""

    collective: str
    module: str
    where: str


@dataclass(frozen=True)
class TracesDiffer:
    """Ranks ran different collectives on one group.

    Args:
        group: its ranks.
        step: the first collective in which they differ, from 1.
        first: (rank, what it ran then, or None) of both ranks.
        ranks: rank → all that it ran.
    """

    group: tuple[int, ...]
    step: int
    first: tuple[tuple[int, Ran | None], ...]
    ranks: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class MessagesLost:
    """One rank sent another more, or fewer, messages than that one received."""

    source: int
    target: int
    sent: int
    received: int


# ---- what a candidate costs


@dataclass(frozen=True)
class OverBudget:
    """More was communicated than the budget allows: elements that one rank sends.

    Args:
        ran: op → how often.
        passes: the microbatches in which it did.
    """

    phase: Phase
    ran: Mapping[str, int]
    passes: int


@dataclass(frozen=True)
class OverSaved:
    """More is saved for backward than the budget allows, in elements."""

    saved: int
    allowed: int


@dataclass(frozen=True)
class PathNotTaken:
    """A collective that shows that a path was taken ran too rarely."""

    op: str
    phase: Phase
    ran: int
    due: int


@dataclass(frozen=True)
class WrongDtype:
    """A collective ran in another dtype than the budget's."""

    op: str
    phase: Phase
    dtype: str
    expected_dtype: str
    where: str = ""


OfTensor = Values | Absent | WrongShape | Elsewhere | ReplicasDiffer
OfParameter = Misheld | PlanFault
OfRank = Raised | Died | Stuck | Refused
OfTrace = TracesDiffer | MessagesLost | PathNotTaken | WrongDtype
OfCost = OverBudget | OverSaved
Evidence = OfTensor | OfParameter | OfRank | OfTrace | OfCost
