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

    seen: AtTensor | AtCollective


FirstSeen = AtModule | AtTensor | AtCollective | OnlyCompiled
