"""Causes that show in what the candidate's own loader left in a parameter, or its own arithmetic in
a buffer, on one rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadedNaN:
    """Elements are NaN: the loader did not write them."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class LoadedNothing:
    """Of an optimizer's state: nothing, or zeros, as a new one has."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class LoadedIntegers:
    """Integers or bools are those of another rank, or none of the checkpoint's: they are as the
    module was built with them, or the loader has written others."""

    parameter: str
    rank: int
    of_rank: int | None = None


@dataclass(frozen=True)
class LoadedRounded:
    """All elements are near the right ones: they were rounded on the way."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class LoadedRows:
    """Other rows of the full parameter along `dim`: these `rows`.

    Args:
        repeated: whether some of them are there more than once, and should not be.
        due: those that should be there, where that is known.
    """

    parameter: str
    rank: int
    dim: int
    rows: tuple[int, ...]
    repeated: bool
    due: tuple[int, ...] = ()


@dataclass(frozen=True)
class LoadedElements:
    """Elements of the full parameter that are not rows of it along any dim."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class LoadedScaled:
    """All elements are `factor` times the right ones."""

    parameter: str
    rank: int
    factor: float


@dataclass(frozen=True)
class LoadedAnother:
    """Rows of other parameters that are as wide: those of a fused weight, say.

    Args:
        of: whose rows they are, in their order; its own among them.
    """

    parameter: str
    rank: int
    of: tuple[str, ...]


@dataclass(frozen=True)
class LoadedApart:
    """Something else than other ranks, which hold the same parameter."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class ComputedOtherwise:
    """A buffer that no checkpoint holds is not what the reference computes.

    Args:
        nan: whether it has elements that are NaN: it was allocated, and nobody filled it.
        rounded: whether all of it is near: it was computed in a lower precision.
        factor: how many times the reference's it is, where it is that.
        rows: which rows of the reference's along `dim` it has, where it has others.
        apart: whether ranks that should have the same hold different ones.
    """

    buffer: str
    rank: int
    nan: bool = False
    rounded: bool = False
    factor: float | None = None
    dim: int | None = None
    rows: tuple[int, ...] | None = None
    apart: bool = False


OfLoading = (
    LoadedNaN
    | LoadedNothing
    | LoadedIntegers
    | LoadedRounded
    | LoadedRows
    | LoadedElements
    | LoadedScaled
    | LoadedAnother
    | LoadedApart
    | ComputedOtherwise
)


def is_the_loaders(cause: object) -> bool:
    """Whether what a loader left is at fault, and not what the candidate computes."""
    return isinstance(cause, OfLoading) and not isinstance(cause, ComputedOtherwise)
