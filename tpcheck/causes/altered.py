"""Causes that show once the reference is asked about other numbers: inputs, cotangents or
parameters in another order, or a part of them."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Side, Subject


@dataclass(frozen=True)
class Reversed:
    """The parts stand in the reversed order of the ranks."""


@dataclass(frozen=True)
class Rotated:
    """The parts begin with the second rank's and end with the first's."""


@dataclass(frozen=True)
class AlongDim:
    """The parts are put together along `dim`, and were taken along `instead_of`."""

    dim: int
    instead_of: int


Gathered = Reversed | Rotated | AlongDim


@dataclass(frozen=True)
class Regathered:
    """The tensor is what the reference gives once the parts of the input or cotangent `name` are
    put together in this wrong way."""

    subject: Subject
    side: Side
    name: str
    gathered: Gathered


@dataclass(frozen=True)
class OwnPartOnly:
    """Each wrong rank has what the reference gives for its own part of these inputs alone."""

    subject: Subject
    ranks: tuple[int, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Regrouped:
    """The tensor is what the reference gives once the rows of a sharded parameter along `dim`
    stand in another `order`: read as [o, a, b, i], laid out as [o, b, a, i].

    Args:
        groups: (a, b).
    """

    subject: Subject
    parameter: str
    dim: int
    groups: tuple[int, int]
    order: tuple[int, ...]


@dataclass(frozen=True)
class RowsMixed:
    """The output is right where all rows of the input `mixed` along `dim` are the same, and in
    the reference no row depends on another."""

    subject: Subject
    mixed: str
    dim: int


@dataclass(frozen=True)
class ScaledByOwnParts:
    """The tensor is what the reference gives once each rank's part of these tensors is taken by
    itself, other parts zero, and the results are added: what the reference takes of all parts, a
    largest number, each rank takes of its own."""

    subject: Subject
    parts_of: tuple[str, ...]


OfAltered = Regathered | OwnPartOnly | Regrouped | RowsMixed | ScaledByOwnParts
