"""Causes that show in the steps of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class NotStepped:
    """On these ranks it is after a step what it was before: the optimizer does not have it.

    Args:
        others: whether other ranks are right.
        buffer: whether it is one, which forwards update.
    """

    subject: Subject
    ranks: tuple[int, ...]
    others: bool
    buffer: bool = False


@dataclass(frozen=True)
class FrozenMoves:
    """It takes no gradient, the reference's steps leave it as it is, and these ranks' do not."""

    subject: Subject
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class BeginsAnew:
    """What the optimizer keeps is on these ranks what it would be after its first step.

    Args:
        others: whether other ranks are right.
    """

    subject: Subject
    ranks: tuple[int, ...]
    others: bool


@dataclass(frozen=True)
class GradientOfOwnPart:
    """What the step adds to it, summed over `ranks`, which should be replicas, is what it should
    add.

    Args:
        clipped: whether that is by gradients that are clipped.
    """

    subject: Subject
    ranks: tuple[int, ...]
    clipped: bool


@dataclass(frozen=True)
class NotZeroed:
    """The gradient has that of the step before in it."""

    subject: Subject


@dataclass(frozen=True)
class UpdateScaled:
    """What a step adds is so many times what it should be: rank → factor, of those that are wrong.

    Args:
        world: whether the factor is R, the TP degree, or its inverse, on all of them.
    """

    subject: Subject
    factors: Mapping[int, float]
    world: bool = False


@dataclass(frozen=True)
class NoState:
    """The optimizer of `rank` keeps nothing of a parameter where the reference's does."""

    subject: Subject
    rank: int


@dataclass(frozen=True)
class OverflowNotShared:
    """Ranks take a step that others leave out, since a gradient that only these have is infinite.

    Args:
        gradient: the parameter whose gradient it is.
        owners: the ranks that have it.
        ranks: those that take the step.
    """

    subject: Subject
    gradient: str
    owners: tuple[int, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class OverflowIgnored:
    """Ranks change it in a step which the reference leaves out.

    Args:
        gradient: the parameter of which a gradient is infinite.
        ranks: those that have that gradient, where its element is not finite there afterwards; none
            where all ranks change it.
    """

    subject: Subject
    gradient: str
    ranks: tuple[int, ...] = ()


OfSteps = (
    NotStepped
    | FrozenMoves
    | BeginsAnew
    | GradientOfOwnPart
    | NotZeroed
    | UpdateScaled
    | NoState
    | OverflowNotShared
    | OverflowIgnored
)
