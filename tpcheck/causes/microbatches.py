"""Causes that show in which microbatches count, how often, and in which order they came."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class FirstPassRepeated:
    """The first microbatch's gradient is there `factor` times more than once."""

    subject: Subject
    factor: float


@dataclass(frozen=True)
class ReducedWithEach:
    """What has come together of the microbatches before is summed over the R ranks once more with
    each of them: microbatch i of `of`, from 0, is there R^(of − 1 − i) times, the first `times`."""

    subject: Subject
    times: int
    of: int


@dataclass(frozen=True)
class SomePassesOnly:
    """Of a gradient only the microbatches `kept`, of `of`, are in the sum."""

    subject: Subject
    kept: tuple[int, ...]
    of: int


@dataclass(frozen=True)
class OnlyFirstSummed:
    """The first microbatch's gradient is summed over the ranks, the others' are not."""

    subject: Subject
    ranks: tuple[int, ...]


class Moved(StrEnum):
    """What comes in another order."""

    INPUTS = "inputs"
    COTANGENTS = "cotangents"


@dataclass(frozen=True)
class PassesReordered:
    """Every pass is what the microbatches in this `order` would give."""

    subject: Subject
    side: Moved
    order: tuple[int, ...]


OfMicrobatches = (
    FirstPassRepeated | ReducedWithEach | SomePassesOnly | OnlyFirstSummed | PassesReordered
)
