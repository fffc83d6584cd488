"""Causes that show in the norm of all gradients, and in what is clipped by it."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Counted


@dataclass(frozen=True)
class NormCounts:
    """The norm is what it would be if the gradients of these parameters (all of them, where none is
    named) were counted so.

    Args:
        axes: over whose ranks alone they are, or once more; several where it may be any of them.
        group: some ranks along one axis, which are such, with others like them.
        of_rank: whose part stands for all, or is left out.
        on: ranks that count so, where others count right.
    """

    subject: Subject
    counted: Counted
    names: tuple[str, ...]
    axes: tuple[str, ...] = ()
    group: tuple[int, ...] | None = None
    of_rank: int | None = None
    on: tuple[int, ...] | None = None


@dataclass(frozen=True)
class NotClipped:
    """These ranks have stepped by gradients that are not clipped; the others' are."""

    subject: Subject
    ranks: tuple[int, ...]


OfNorms = NormCounts | NotClipped
