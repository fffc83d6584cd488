"""Evidence of ranks that did not finish: what each did, and where it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.evidence.tensors import Misheld
from tpcheck.vocabulary import Impasse, Lost, Phase


@dataclass(frozen=True)
class Scene:
    """Where a rank was when it failed; None where that is not known.

    Args:
        last: the collectives that it entered last, oldest first.
        stack: the Python stack.
        phase, module: what it was at, and in which module of the candidate.
        consequence: whether it failed because another rank did.
        peers, stacks: `last` and `stack` of every rank that failed, by rank.
        misheld: parameters that it held otherwise than laid out, by name, on their way to the
            driver, where they become evidence of their own.
    """

    last: tuple[str, ...] | None = None
    stack: str | None = None
    phase: Phase | None = None
    module: str | None = None
    consequence: bool | None = None
    peers: Mapping[str, tuple[str, ...]] | None = None
    stacks: Mapping[str, str] | None = None
    misheld: tuple[tuple[str, Misheld], ...] | None = None


@dataclass(frozen=True)
class Raised:
    """A rank raised.

    Args:
        type, text: of the exception.
        communicating: whether it was raised by a collective.
        row: the order of parallelisms that torch refuses with it (`order`), where it is one.
        starved: whether there is not as much memory as lies between giant rows.
    """

    type: str
    text: str
    scene: Scene = Scene()
    communicating: bool = False
    row: str | None = None
    starved: bool = False


@dataclass(frozen=True)
class Died:
    """A rank's process ended, or can't be talked to any more.

    Args:
        status: its exit code, or minus the signal that killed it; None where that is not known.
        log: the end of what it printed.
        lost: how it was lost to the driver.
    """

    status: int | None
    log: str = ""
    scene: Scene = Scene()
    lost: Lost = Lost.ENDED


@dataclass(frozen=True)
class Entered:
    """A collective, in a line, and the rank that entered it; `where` is the line of the code."""

    rank: int
    collective: str
    where: str = ""


@dataclass(frozen=True)
class Stuck:
    """A rank was given up.

    Args:
        why: what was seen.
        waits_in: the collective in which it waits, as far as is known; None where in none.
        absent: the ranks that have not entered that.
        peer: the rank that finished without that collective.
        seconds: the time limit that the case ran into.
        held: the bytes of memory in which its process was then.
        finished: the ranks that had finished, where all others wait.
        parted: the collective from which on it and `peer` entered all of its group's at different
            places of the code: one was left out there, whichever waits for the other in the end.
    """

    why: Impasse
    absent: tuple[int, ...] = ()
    waits_in: str | None = None
    peer: int | None = None
    seconds: float | None = None
    held: int | None = None
    finished: tuple[int, ...] = ()
    parted: tuple[Entered, Entered] | None = None
    scene: Scene = Scene()


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
