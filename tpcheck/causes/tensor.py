"""Causes that show in one wrong tensor, on the ranks that hold it. R is the TP degree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class AllZero:
    """Every element is zero on the ranks where the tensor is wrong.

    Args:
        looked_up: whether an input is of integers and other ranks are right: rows of a table.
    """

    subject: Subject
    ranks: tuple[int, ...]
    looked_up: bool


@dataclass(frozen=True)
class Scaled:
    """Every element is `factor` times the reference's, on all ranks that are wrong.

    Args:
        world: whether the factor is R.
        microbatches: how many there are, where the factor is that number or its inverse.
    """

    subject: Subject
    factor: float
    ranks: tuple[int, ...]
    world: bool = False
    microbatches: int | None = None


@dataclass(frozen=True)
class Unsummed:
    """The sum over `ranks`, which should be replicas, is the reference: each holds a term."""

    subject: Subject
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Unaveraged:
    """The mean over `ranks`, which should be replicas, is the reference: each holds that of its own
    part."""

    subject: Subject
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class LargestNotShared:
    """Element by element the largest over `ranks`, which should be replicas, is the reference: each
    has that of its own part."""

    subject: Subject
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class PartsExchanged:
    """Each wrong rank holds the part that another should: `map`, rank → that other."""

    subject: Subject
    map: Mapping[int, int]


@dataclass(frozen=True)
class BiasRepeated:
    """Output minus reference is `factor` times one parameter vector, the same in every row."""

    subject: Subject
    rank: int
    factor: float
    bias: str


@dataclass(frozen=True)
class ScaledOnSomeRanks:
    """A multiple of the reference on `ranks`, the reference on the others."""

    subject: Subject
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class LowPrecision:
    """Every value is representable in `dtype`, a lower one, and off by its rounding."""

    subject: Subject
    relative_error: float
    dtype: str


@dataclass(frozen=True)
class PiecesSummed:
    """What `rank` holds is the sum of all ranks' pieces, which should have stayed apart."""

    subject: Subject
    rank: int


@dataclass(frozen=True)
class WrongInLaterPass:
    """The first microbatch's output is right; a later one, or the one after a step, is wrong."""

    subject: Subject


OfTensor = (
    AllZero
    | Scaled
    | Unsummed
    | Unaveraged
    | LargestNotShared
    | PartsExchanged
    | BiasRepeated
    | ScaledOnSomeRanks
    | LowPrecision
    | PiecesSummed
    | WrongInLaterPass
)
