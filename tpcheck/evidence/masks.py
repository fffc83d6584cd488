"""Evidence of random masks: of what a rank drew where the reference draws."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MasksDiffer:
    """Ranks that drop elements of one tensor drew different masks for them.

    Args:
        ranks: all that must agree; `differ_from_first`: those that don't agree with the first.
        where, module: of the draw, in the candidate.
    """

    ranks: tuple[int, ...]
    differ_from_first: tuple[int, ...]
    where: str
    module: str


@dataclass(frozen=True)
class MasksAgree:
    """Ranks that have different parts of a tensor drew the same mask for them.

    Args:
        ranks: those that agree.
        dims: the dims along which the tensor is split between them.
        where, module: of the draw, in the candidate.
    """

    ranks: tuple[int, ...]
    dims: tuple[int, ...]
    where: str
    module: str


@dataclass(frozen=True)
class MaskRepeated:
    """A rank drew the very mask again that it has drawn before, for another tensor.

    Args:
        earlier: the name of that one.
    """

    earlier: str
    where: str
    module: str


@dataclass(frozen=True)
class MaskRedrawn:
    """A forward that is computed again in backward drew another mask than the first time."""

    where: str
    module: str


@dataclass(frozen=True)
class OtherRate:
    """What is dropped is dropped with another chance than the reference's.

    Args:
        chance, expected: of the outcome that the candidate, or the reference, draws.
    """

    chance: float
    expected: float
    where: str
    module: str


@dataclass(frozen=True)
class MaskOfOtherShape:
    """The mask is no part of the reference's."""

    shape: tuple[int, ...]
    expected_shape: tuple[int, ...]
    where: str
    module: str


@dataclass(frozen=True)
class MasksCounted:
    """A forward drew more, or fewer, masks than the reference's."""

    drawn: int
    expected: int


OfMask = (
    MasksDiffer
    | MasksAgree
    | MaskRepeated
    | MaskRedrawn
    | OtherRate
    | MaskOfOtherShape
    | MasksCounted
)
