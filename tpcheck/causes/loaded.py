"""Causes that show in what the candidate's own loader left in a parameter, on one rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadedNaN:
    """Elements are NaN: the loader did not write them."""

    parameter: str
    rank: int


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
    """

    parameter: str
    rank: int
    dim: int
    rows: tuple[int, ...]
    repeated: bool


@dataclass(frozen=True)
class LoadedElements:
    """Elements of the full parameter that are not rows of it along any dim."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class LoadedAnother:
    """Rows of another parameter that is as wide: one of a fused weight, say."""

    parameter: str
    rank: int


@dataclass(frozen=True)
class LoadedApart:
    """Something else than other ranks, which hold the same parameter."""

    parameter: str
    rank: int


OfLoading = LoadedNaN | LoadedRounded | LoadedRows | LoadedElements | LoadedAnother | LoadedApart
