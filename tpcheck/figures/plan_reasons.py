"""Why a parameter is placed as it is: a closed union of small classes, `Reason`.

Data only: `report/placements.py` has the words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UnevenSplit:
    """A dim of `size` that the degree does not divide: `most` on the first rank, `least` on the
    last."""

    size: int
    most: int
    least: int


@dataclass(frozen=True)
class ShardedBy:
    """An entry shards it."""

    style: str
    key: str
    uneven: UnevenSplit | None = None


@dataclass(frozen=True)
class KeptBy:
    """An entry keeps it replicated on purpose, and sees to its gradient."""

    style: str
    key: str


@dataclass(frozen=True)
class BiasAfterSum:
    """The bias of a row split is replicated, and added once, after the sum."""

    key: str


@dataclass(frozen=True)
class Declared:
    """The plan declares it, in its field `whole` or `reduced`."""

    field: str


@dataclass(frozen=True)
class ShardsNothing:
    """An entry matches its module, or one above, with a style that shards nothing."""

    style: str
    key: str


@dataclass(frozen=True)
class LeftOut:
    """No entry names it, while `siblings` (in other layers) are sharded."""

    siblings: tuple[str, ...]


@dataclass(frozen=True)
class Unnamed:
    """No entry names it; `meant` is a key that matches nothing and may mean it."""

    meant: str | None = None


Reason = ShardedBy | KeptBy | BiasAfterSum | Declared | ShardsNothing | LeftOut | Unnamed
