"""The sentences of `tpcheck/causes/tensor.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DW, DX, LATER, OUT, Said
from tpcheck.causes.tensor import (
    AllZero,
    BiasRepeated,
    LargestNotShared,
    LowPrecision,
    PartsExchanged,
    PiecesSummed,
    Scaled,
    ScaledOnSomeRanks,
    Unaveraged,
    Unsummed,
    WrongInLaterPass,
)

SAID: list[Said] = [
    (
        AllZero(OUT, (0, 1), looked_up=False),
        "output is zero on ranks [0, 1]: a buffer that nothing was written to",
        {"ranks": [0, 1]},
    ),
    (AllZero(DX, (1,), looked_up=False), "input_grad x is zero on ranks [1]", {"ranks": [1]}),
    (
        AllZero(DW, (1,), looked_up=True),
        "param_grad up.weight is zero on ranks [1]: rows of tokens that were looked up",
        {},
    ),
    (
        Scaled(LATER, 2.0, (0, 1), world=True),
        "output@1: every element is world_size × the reference",
        {"factor": 2.0, "ranks": [0, 1]},
    ),
    (
        Scaled(DW, 1 / 4, (0,), microbatches=4),
        "param_grad up.weight: every element is 0.25 × the reference, which has 4 microbatches",
        {"factor": 0.25, "ranks": [0]},
    ),
    (
        Unsummed(OUT, (0, 1)),
        "output: summed over ranks [0, 1] it equals the reference: an all-reduce is missing "
        "(forward)",
        {"ranks": [0, 1]},
    ),
    (
        LargestNotShared(DW, (0, 1)),
        "param_grad up.weight: the largest over ranks [0, 1] is the reference: each has that of "
        "its own part",
        {"ranks": [0, 1]},
    ),
    (
        Unaveraged(DW, (0, 1)),
        "param_grad up.weight: averaged over ranks [0, 1] it equals the reference: each has the "
        "mean of its own part",
        {"ranks": [0, 1]},
    ),
    (
        Unsummed(DW, (0, 1)),
        "param_grad up.weight: summed over ranks [0, 1] it equals the reference: its gradient "
        "needs a sum over them (backward)",
        {"ranks": [0, 1]},
    ),
    (
        PartsExchanged(OUT, {0: 1, 1: 0}),
        "output: rank 0 has rank 1's, rank 1 has rank 0's part",
        {"map": {"0": 1, "1": 0}},
    ),
    (
        BiasRepeated(OUT, 1, -1.0, "bias"),
        "output is off by -1 × bias on rank 1: the bias must be added once, after the sum",
        {"factor": -1.0, "bias": "bias"},
    ),
    (
        ScaledOnSomeRanks(DW, (0,)),
        "param_grad up.weight is scaled on ranks [0] and right on the others",
        {"ranks": [0]},
    ),
    (
        LowPrecision(OUT, 2**-11, "float16"),
        "output agrees to 11.0 bits, and every value is representable in float16",
        {"relative_error": 2**-11},
    ),
    (
        PiecesSummed(DW, 0),
        "param_grad up.weight of rank 0 is the sum of all ranks' different pieces: reduced "
        "although sharded, or over too large a group",
        {"rank": 0},
    ),
    (
        WrongInLaterPass(LATER),
        "output@1 is wrong and the first pass is right: something old is reused",
        {},
    ),
]  # fmt: skip
