"""Causes that show in the terms of a sum that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.causes.where import Side, Subject


@dataclass(frozen=True)
class SomeTermsOnly:
    """The reference is a sum over positions of an input or cotangent, and each wrong rank has the
    sum over some of them.

    Args:
        kept: rank → the positions that count.
        of: how many there are, along `dim` of `along`.
        own: whether they are those of one rank's own part.
    """

    subject: Subject
    side: Side
    along: str
    dim: int
    kept: Mapping[int, tuple[int, ...]]
    of: int
    own: bool


OfTerms = SomeTermsOnly
