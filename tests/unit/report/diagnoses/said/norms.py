"""The sentences of `tpcheck/causes/norms.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import Said
from tpcheck.causes.norms import NormCounts, NotClipped
from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Counted, Kind

NORM = Subject(Kind.GRAD_NORM, "norm")

SAID: list[Said] = [
    (
        NormCounts(NORM, Counted.OWN, ()),
        "grad_norm norm: each rank counts its own part of the gradients alone",
        {"counted": "own"},
    ),
    (
        NormCounts(NORM, Counted.COPIES, ("up.bias",)),
        "grad_norm norm: up.bias counted once for each rank that has a copy",
        {"names": ["up.bias"]},
    ),
    (
        NormCounts(NORM, Counted.NAMES, ("head.weight",)),
        "grad_norm norm: head.weight counted once for each of its names",
        {"counted": "names"},
    ),
    (
        NormCounts(NORM, Counted.ONE_RANK, ("up.weight",), of_rank=1),
        "grad_norm norm: rank 1's part of up.weight stands for all",
        {"counted": "one-rank"},
    ),
    (
        NormCounts(NORM, Counted.ALL_BUT_ONE, (), of_rank=2, on=(0, 1)),
        "grad_norm norm on ranks [0, 1]: rank 2's part of the gradients is left out",
        {"counted": "all-but-one", "of_rank": 2, "on": [0, 1]},
    ),
    (
        NormCounts(NORM, Counted.SUM_OF_RANKS, ()),
        "grad_norm norm: the ranks' norms of the gradients are added up",
        {"counted": "sum-of-ranks"},
    ),
    (
        NormCounts(NORM, Counted.ONE_AXIS, (), axes=("ep",)),
        "grad_norm norm: the gradients summed over the ranks along ep alone",
        {"counted": "one-axis", "axes": ["ep"]},
    ),
    (
        NormCounts(NORM, Counted.SOME_RANKS, (), group=(0, 1, 4, 5)),
        "grad_norm norm: the gradients summed over ranks [0, 1, 4, 5] and others like them alone",
        {"counted": "some-ranks"},
    ),
    (
        NormCounts(NORM, Counted.SUM_OF_RANKS, (), axes=("dp",)),
        "grad_norm norm: the ranks' norms of the gradients are added up along dp",
        {"counted": "sum-of-ranks", "axes": ["dp"]},
    ),
    (
        NormCounts(NORM, Counted.MEAN, (), axes=("dp",)),
        "grad_norm norm: the gradients averaged over the ranks along dp, not summed",
        {"counted": "mean"},
    ),
    (
        NormCounts(NORM, Counted.AGAIN, (), axes=("dp", "ep", "tp")),
        "grad_norm norm: the gradients summed over the ranks along dp, ep or tp once more",
        {"counted": "again", "axes": ["dp", "ep", "tp"]},
    ),
    (
        NormCounts(NORM, Counted.AGAIN, (), group=(0, 4)),
        "grad_norm norm: the gradients summed over ranks [0, 4] and others like them once more",
        {"group": [0, 4]},
    ),
    (
        NormCounts(NORM, Counted.NEVER, ("up.weight",)),
        "grad_norm norm: up.weight left out",
        {"counted": "never"},
    ),
    (
        NotClipped(Subject(Kind.PARAM, "up.weight"), (1,)),
        "param up.weight: ranks [1] step by gradients that are not clipped",
        {"ranks": [1]},
    ),
]  # fmt: skip
