"""Causes that show in a parameter with several names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class TiedUnsummed:
    """One parameter with several names on different stages: what they hold of its gradient adds
    up to the reference."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TiedSummedOverAxis:
    """As `TiedUnsummed`, and each is summed over the mesh axis `axis`, along which its like
    already agree."""

    names: tuple[str, ...]
    axis: str


@dataclass(frozen=True)
class TiedSplit:
    """Each of the names has the gradient of its own use: they are parameters of their own."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class UsesOfTied:
    """The gradient has the use under each name so many times."""

    subject: Subject
    times: Mapping[str, float]


OfTied = TiedUnsummed | TiedSummedOverAxis | TiedSplit | UsesOfTied
