"""Causes that show in another case, or in the same one run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.case import Dim
from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Code


@dataclass(frozen=True)
class RightWithoutData:
    """The case is wrong on this mesh, and right without its dp axis.

    Args:
        exchanged: whether ranks of other data do exchange something, as they are to.
    """

    subject: Subject
    mesh: Mapping[str, int]
    exchanged: bool


@dataclass(frozen=True)
class WrongOnOneRank:
    """The tensor is wrong at tp=1, too, in one microbatch: no rank exchanges anything there.

    Args:
        refuted: what would have been named, and is done between ranks.
        factor: by which the tensor would have been off, where a factor was named.
        of: the parameter that many times which it is off; None of a multiple of the reference.
    """

    subject: Subject
    refuted: Code | None
    factor: float | None
    of: str | None = None


@dataclass(frozen=True)
class RoundingOnly:
    """Right in float64, and no error is larger than a coarser dtype rounds: at most
    `error_over_bound` bounds."""

    subject: Subject
    error_over_bound: float


@dataclass(frozen=True)
class NothingKnownInDtype:
    """Right in float64, wrong in this dtype by more than it rounds, and no other cause fits."""

    subject: Subject
    only_in: str


@dataclass(frozen=True)
class WrongAfter:
    """The case is right alone, and wrong where another one, `before`, has run in the same
    process.

    Args:
        others: how many have run before that, where it takes all of them.
    """

    subject: Subject
    before: str
    others: int = 0


@dataclass(frozen=True)
class ChangesOnRerun:
    """The element at `index` was `first` and, in the same case run again, `second`."""

    subject: Subject
    index: tuple[int, ...]
    first: float
    second: float


@dataclass(frozen=True)
class RightWithEqualHeads:
    """Wrong with `heads` query heads and `kv` K/V heads, right with `heads` of each."""

    subject: Subject
    heads: Dim
    kv: Dim


@dataclass(frozen=True)
class RightWhenContiguous:
    """Wrong where a kernel's tensors are in this memory format, right where they are contiguous."""

    subject: Subject
    memory: str


@dataclass(frozen=True)
class RightForOnes:
    """Wrong, and right where all upstream gradients are ones.

    Args:
        rounded: whether it is off by no more than a coarser dtype rounds.
    """

    subject: Subject
    rounded: bool = False


@dataclass(frozen=True)
class RightForAllGradients:
    """Wrong where some of the gradients are asked for, or none, and right where all are."""

    subject: Subject
    none: bool = False


@dataclass(frozen=True)
class RightWhenApart:
    """Wrong where arguments of one shape are one tensor, and right where each is its own."""

    subject: Subject


@dataclass(frozen=True)
class RoundedOnTheWay:
    """Off by no more than a coarser dtype rounds, and by something else for inputs that are nearly
    the same."""

    subject: Subject


@dataclass(frozen=True)
class RightWhenFinite:
    """A finite row is wrong where another row has an infinite number, and right where none has."""

    subject: Subject


@dataclass(frozen=True)
class RightInAnotherConfiguration:
    """Wrong where an autotuned kernel runs in one of its configurations, and right in `right`."""

    subject: Subject
    wrong: str
    right: str


OfReruns = (
    RightWithoutData
    | WrongOnOneRank
    | RoundingOnly
    | NothingKnownInDtype
    | WrongAfter
    | ChangesOnRerun
    | RightWithEqualHeads
    | RightWhenContiguous
    | RightForOnes
    | RightForAllGradients
    | RightWhenApart
    | RoundedOnTheWay
    | RightWhenFinite
    | RightInAnotherConfiguration
)
