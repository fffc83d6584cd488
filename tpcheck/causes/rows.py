"""Causes that show in the rows of one wrong tensor."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class RowsPermuted:
    """The rows of `rank` along `dim` are rows of the reference, in another order.

    Args:
        rows: which row of the reference each is, this rank's rows first, then the others'.
    """

    subject: Subject
    rank: int
    dim: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class RowsOfTokens:
    """Each wrong row of a look-up (or of its table's gradient) is empty, another token's, or has
    one token's row too many: `rows` of `held` are."""

    subject: Subject
    rows: int
    held: int


OfRows = RowsPermuted | RowsOfTokens
