"""The sentences of `tpcheck/causes/reruns.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import OUT, Said
from tpcheck.causes.reruns import (
    ChangesOnRerun,
    NothingKnownInDtype,
    RightForAllGradients,
    RightForOnes,
    RightInAnotherConfiguration,
    RightWhenApart,
    RightWhenContiguous,
    RightWhenFinite,
    RightWithEqualHeads,
    RightWithoutData,
    RoundedOnTheWay,
    RoundingOnly,
    WrongAfter,
    WrongOnOneRank,
)
from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Code, Kind

SAID: list[Said] = [
    (
        RightWithoutData(OUT, {"dp": 2, "tp": 4}, exchanged=False),
        "output is wrong on a 2 × 4 mesh and right on tp=4 alone: a collective runs over the wrong "
        "group",
        {"mesh": {"dp": 2, "tp": 4}, "exchanged": False},
    ),
    (
        RightWithoutData(OUT, {"dp": 2, "tp": 4}, exchanged=True),
        "output is wrong on a 2 × 4 mesh and right on tp=4 alone: what the dp=2 ranks of the same "
        "shards make of what they exchange is not right",
        {"mesh": {"dp": 2, "tp": 4}, "exchanged": True},
    ),
    (
        WrongOnOneRank(OUT, Code.SUMMED_TWICE, 2.0),
        "output is wrong at tp=1, too, where no rank exchanges anything with another: the "
        "arithmetic is not the reference's (2 × it)",
        {"refuted": "summed-twice", "factor": 2.0},
    ),
    (
        WrongOnOneRank(OUT, Code.BIAS_PER_RANK, -1.0, "row.bias"),
        "output is wrong at tp=1, too, where no rank exchanges anything with another: the "
        "arithmetic is not the reference's (off by -1 × row.bias)",
        {"factor": -1.0, "of": "row.bias"},
    ),
    (
        WrongOnOneRank(OUT, None, None),
        "output is wrong at tp=1, too, where no rank exchanges anything with another: the "
        "arithmetic is not the reference's",
        {"refuted": None},
    ),
    (
        RoundingOnly(OUT, 12.0),
        "output is right in float64 and off by 12 × its bound here, which is no more than a "
        "coarser dtype rounds",
        {"error_over_bound": 12.0},
    ),
    (
        NothingKnownInDtype(OUT, "float32"),
        "output is wrong in float32 and right in float64, by more than a coarser dtype rounds; "
        "none of the known causes fits",
        {"only_in": "float32"},
    ),
    (
        RoundedOnTheWay(OUT),
        "output is off by no more than a coarser dtype rounds, and by something else where inputs "
        "are a little larger or smaller: it is rounded on the way, whatever the case's dtype is",
        {},
    ),
    (
        WrongAfter(OUT, "tp=1 float32 rows=2"),
        "output is right alone, and wrong after the case tp=1 float32 rows=2 in the same process: "
        "something is kept between calls",
        {"before": "tp=1 float32 rows=2"},
    ),
    (
        WrongAfter(Subject(Kind.EXCEPTION, "exception"), "tp=1 float32 rows=2", 3),
        "the case is right alone, and raises after the case tp=1 float32 rows=2 and 3 others "
        "before that in the same process: something is kept between calls",
        {"others": 3},
    ),
    (
        ChangesOnRerun(OUT, (0, 1), float("nan"), 0.5),
        "output [0, 1] was nan and, run again, 0.5: read too early",
        {"first": "nan", "second": 0.5},
    ),
    (
        RightWithEqualHeads(OUT, 4, 2),
        "output is wrong with 4 query, 2 K/V heads and right with 4 of each",
        {"heads": 4, "kv": 2},
    ),
    (
        RightWhenContiguous(OUT, "padded"),
        "output is wrong where tensors are padded in memory and right where they are contiguous: "
        "strides are not used, or not all",
        {"memory": "padded"},
    ),
    (
        RightForOnes(OUT),
        "output is right where all upstream gradients are ones, and wrong for others: they are not "
        "used, not all of them, or not as they are",
        {},
    ),
    (
        RightForOnes(OUT, rounded=True),
        "output is right where all upstream gradients are ones, and off by no more than a coarser "
        "dtype rounds for others: that is done to them",
        {"rounded": True},
    ),
    (
        RightForAllGradients(OUT, none=True),
        "output is wrong where no gradient is asked for, and not where all are",
        {"none": True},
    ),
    (
        RightForAllGradients(OUT),
        "output is wrong where only some gradients are asked for, and not where all are",
        {},
    ),
    (
        RightForAllGradients(Subject(Kind.EXCEPTION, "exception")),
        "it raises where only some gradients are asked for, and not where all are",
        {"subject": {"kind": "exception", "name": "exception"}},
    ),
    (
        RightWhenApart(OUT),
        "output is wrong where two arguments are the same tensor, and right where each has its own "
        "memory",
        {},
    ),
    (
        RightWhenFinite(OUT),
        "output is wrong in rows of finite numbers where other rows have ∞, and right where none "
        "has: rows are not independent",
        {},
    ),
    (
        RightInAnotherConfiguration(OUT, "BLOCK=64", "BLOCK=32"),
        "output is wrong where the autotuned kernel runs with BLOCK=64, and right with BLOCK=32",
        {"wrong": "BLOCK=64", "right": "BLOCK=32"},
    ),
]  # fmt: skip
