"""Where a failure is: the tensor that a cause is about, and the place where it is seen first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tpcheck.vocabulary import End, Kind, Phase


@dataclass(frozen=True)
class Subject:
    """The tensor that a cause is about.

    Args:
        kind, name: as in a mismatch. Of a tensor at a module's boundary: what it counts as, and
            the module's qualified name ("" for the outermost).
        side: of a tensor at a boundary, which it is; else None.
    """

    kind: Kind
    name: str
    side: End | None = None


class Side(StrEnum):
    """What the reference was asked to take otherwise: what goes into forward, or into backward."""

    INPUT = "input"
    COTANGENT = "cotangent"


@dataclass(frozen=True)
class AtModule:
    """The first module at whose boundary the candidate leaves the bounds; everything before it
    agrees.

    Args:
        module: qualified name; "" for the outermost.
        after: the module just before, where its result is a sum that is still to be taken.
    """

    module: str
    phase: Phase
    after: str | None = None


@dataclass(frozen=True)
class AtTensor:
    """The first tensor that is wrong, in the order of computation; the module is not known."""

    name: str
    phase: Phase


@dataclass(frozen=True)
class AtCollective:
    """The module of the collective that a rank refused to enter."""

    module: str
    phase: Phase | None


@dataclass(frozen=True)
class OnlyCompiled:
    """What is wrong where torch.compile is on, and right where it is off."""

    seen: AtTensor | AtCollective | AfterGradients


class Early(StrEnum):
    """Whose doing a tensor is before the first forward."""

    HELD = "held"  # by the candidate: its shape, its placement, or on which ranks it is
    LOADED = "loaded"  # by the candidate's own loader
    COMPUTED = "computed"  # by the candidate: a buffer that no checkpoint holds


@dataclass(frozen=True)
class BeforeForward:
    """A tensor that is wrong before the first forward."""

    name: str
    doing: Early


class Unfinished(StrEnum):
    """What backward left of a gradient that is wrong once `finalize` has run."""

    RIGHT = "right"
    TERMS = "terms"  # the ranks' add up to the right one
    LEFT = "left"  # the same, and `finalize` does not touch them
    UNKNOWN = "unknown"  # something else, and `finalize` changes it


@dataclass(frozen=True)
class AtFinalize:
    """The gradient of a parameter that is wrong after `finalize`, and what it was before."""

    name: str
    before: Unfinished


@dataclass(frozen=True)
class AfterGradients:
    """The first tensor that is wrong comes after the gradients of its step, all of which agree.

    Args:
        kind: the norm of all gradients, an optimizer's state, or a parameter.
        clipped: whether gradients are clipped before the step.
        buffer: whether it is a buffer, which no step changes.
    """

    name: str
    kind: Kind
    clipped: bool = False
    buffer: bool = False


@dataclass(frozen=True)
class LeftInGradient:
    """A gradient that was not zero when its backward began."""

    name: str


FirstSeen = (
    AtModule
    | AtTensor
    | AtCollective
    | OnlyCompiled
    | BeforeForward
    | AtFinalize
    | AfterGradients
    | LeftInGradient
)
