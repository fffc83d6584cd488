"""The sentences of `causes.losses`."""

from __future__ import annotations

from functools import singledispatch

from tpcheck.causes import losses as causes
from tpcheck.errors import counted
from tpcheck.report.diagnoses.where import called
from tpcheck.vocabulary import Statistic

STATISTICS = {
    Statistic.LARGEST: "the largest logit",
    Statistic.SUM: "the sum of logits",
    Statistic.SUM_OF_EXPONENTIALS: "the sum of exponentials",
    Statistic.MEAN: "the mean of logits, as smoothed labels have it,",
    Statistic.SQUARE_OF_LOG: "the squared logarithm of the sum of exponentials, a z-loss,",
}


@singledispatch
def sentence(cause: causes.OfLosses) -> str:
    raise TypeError(f"{type(cause).__name__} has no sentence")


@sentence.register
def _(cause: causes.StatisticOfOwnPart) -> str:
    return (
        f"{called(cause.subject)}: {STATISTICS[cause.statistic]} is that of each rank's own "
        f"columns of {cause.logits}: it was not reduced over the ranks"
    )


@sentence.register
def _(cause: causes.CountedOnEachRank) -> str:
    return (
        f"{called(cause.subject)} is off by log {cause.ranks}: the sum of exponentials was added "
        "up over ranks that all have it whole"
    )


@sentence.register
def _(cause: causes.PaddingCounted) -> str:
    return (
        f"{called(cause.subject)}: the sum of exponentials has {counted(cause.columns, 'column')} "
        f"of {cause.logits} without an id"
    )


@sentence.register
def _(cause: causes.MeanOfOthers) -> str:
    return (
        f"{called(cause.subject)}, and every gradient, is {cause.counted}/{cause.tokens} of what "
        f"it should be: the mean is divided by all {counted(cause.tokens, 'token')} of "
        f"{cause.ids}, of which {cause.counted} count"
    )
