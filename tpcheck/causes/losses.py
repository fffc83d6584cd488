"""Causes that show in a loss of logits whose columns are sharded."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Statistic


@dataclass(frozen=True)
class StatisticOfOwnPart:
    """Each rank's loss is off as it would be with the `statistic` of its own columns of `logits` in
    the place of all columns'."""

    subject: Subject
    logits: str
    statistic: Statistic


@dataclass(frozen=True)
class CountedOnEachRank:
    """The loss is larger by log R: every rank's Σ exp is that of all columns already."""

    subject: Subject
    ranks: int


@dataclass(frozen=True)
class PaddingCounted:
    """Σ exp has the columns of `logits` that belong to no id."""

    subject: Subject
    logits: str
    columns: int


@dataclass(frozen=True)
class MeanOfOthers:
    """The loss, and every gradient, is `counted` / `tokens` of what it should be: the mean is
    divided by the number of all tokens in `ids`, and not of those that count."""

    subject: Subject
    ids: str
    counted: int
    tokens: int


OfLosses = StatisticOfOwnPart | CountedOnEachRank | PaddingCounted | MeanOfOthers
