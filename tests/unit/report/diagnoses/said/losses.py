"""The sentences of `tpcheck/causes/losses.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import OUT, Said
from tpcheck.causes.losses import (
    CountedOnEachRank,
    MeanOfOthers,
    PaddingCounted,
    StatisticOfOwnPart,
)
from tpcheck.vocabulary import Statistic

SAID: list[Said] = [
    (
        StatisticOfOwnPart(OUT, "logits", Statistic.LARGEST),
        "output: the largest logit is that of each rank's own columns of logits: it was not "
        "reduced over the ranks",
        {"statistic": "largest", "logits": "logits"},
    ),
    (
        StatisticOfOwnPart(OUT, "logits", Statistic.SUM),
        "output: the sum of logits is that of each rank's own columns of logits: it was not "
        "reduced over the ranks",
        {"statistic": "sum"},
    ),
    (
        StatisticOfOwnPart(OUT, "logits", Statistic.SUM_OF_EXPONENTIALS),
        "output: the sum of exponentials is that of each rank's own columns of logits: it was not "
        "reduced over the ranks",
        {"statistic": "sum-of-exponentials"},
    ),
    (
        StatisticOfOwnPart(OUT, "logits", Statistic.MEAN),
        "output: the mean of logits, as smoothed labels have it, is that of each rank's own "
        "columns of logits: it was not reduced over the ranks",
        {"statistic": "mean"},
    ),
    (
        StatisticOfOwnPart(OUT, "logits", Statistic.SQUARE_OF_LOG),
        "output: the squared logarithm of the sum of exponentials, a z-loss, is that of each "
        "rank's own columns of logits: it was not reduced over the ranks",
        {"statistic": "square-of-log"},
    ),
    (
        CountedOnEachRank(OUT, 4),
        "output is off by log 4: the sum of exponentials was added up over ranks that all have it "
        "whole",
        {"ranks": 4},
    ),
    (
        PaddingCounted(OUT, "logits", 3),
        "output: the sum of exponentials has 3 columns of logits without an id",
        {"columns": 3},
    ),
    (
        MeanOfOthers(OUT, "targets", 12, 16),
        "output, and every gradient, is 12/16 of what it should be: the mean is divided by all 16 "
        "tokens of targets, of which 12 count",
        {"ids": "targets", "counted": 12, "tokens": 16},
    ),
]  # fmt: skip
