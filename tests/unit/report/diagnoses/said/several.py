"""The sentences of `tpcheck/causes/several.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DW, DX, OUT, Said
from tpcheck.causes.several import (
    AllScaled,
    BranchAveraged,
    BranchRepeated,
    BranchUnsummed,
    InEveryTerm,
    JoinsEveryTerm,
    Overwritten,
    OwnDataOnly,
    PiecesOverWorld,
    ScaledBefore,
    ScaledOverData,
    SomeDataOnly,
    SummedOverData,
    UnsummedBefore,
)

SAID: list[Said] = [
    (
        BranchUnsummed(DX, "gate"),
        "input_grad x: what gate adds to it is not summed over the ranks (backward)",
        {"branch": "gate"},
    ),
    (
        BranchUnsummed(OUT, "adapter"),
        "output: what adapter adds to it is not summed over the ranks",
        {"branch": "adapter"},
    ),
    (
        BranchRepeated(DX, "gate", 3),
        "input_grad x is off by 3 × what gate adds to it: that is summed over the ranks once more "
        "(backward)",
        {"branch": "gate", "times": 3},
    ),
    (
        BranchAveraged(OUT, "down", 2),
        "output has 1/2 of what down adds to it: that was averaged over the ranks, not summed",
        {"branch": "down", "degree": 2},
    ),
    (
        BranchAveraged(DX, "gate", 4),
        "input_grad x has 1/4 of what gate adds to it: that was averaged over the ranks, not "
        "summed (backward)",
        {"branch": "gate", "degree": 4},
    ),
    (
        UnsummedBefore(OUT, (0, 1), ("bias",)),
        "output: summed over ranks [0, 1] it equals the reference once bias counts once: an "
        "all-reduce is missing before it is added (forward)",
        {"ranks": [0, 1], "joined": ["bias"]},
    ),
    (
        UnsummedBefore(DX, (2, 3), ("b", "x")),
        "input_grad x: summed over ranks [2, 3] it equals the reference once b and x count once: "
        "an all-reduce is missing before they are added (backward)",
        {"joined": ["b", "x"]},
    ),
    (
        InEveryTerm(OUT, (0, 1), ("bias",)),
        "output: every rank adds bias to its term of the sum over ranks [0, 1], which is taken "
        "after: it must be added once, after the sum",
        {"ranks": [0, 1], "joined": ["bias"]},
    ),
    (
        InEveryTerm(OUT, (0, 1), ("b", "x")),
        "output: every rank adds b and x to its term of the sum over ranks [0, 1], which is taken "
        "after: they must be added once each, after the sum",
        {"joined": ["b", "x"]},
    ),
    (
        ScaledBefore(OUT, 2.0, ("bias",)),
        "output: all but bias is 2 × what it should be: summed over the ranks twice, before the "
        "rest is added",
        {"factor": 2.0, "joined": ["bias"]},
    ),
    (
        ScaledBefore(DX, 0.25, ("b", "x")),
        "input_grad x: all but b and x is 0.25 × what it should be: averaged over the ranks, "
        "before the rest is added",
        {"factor": 0.25},
    ),
    (
        JoinsEveryTerm(OUT, "x", 1),
        "output is off by 1 × x: it joins every term of the sum",
        {"tensor": "x"},
    ),
    (
        JoinsEveryTerm(DX, "output", 3),
        "input_grad x is off by 3 × the upstream gradient of output: it joins every term of the "
        "sum",
        {"tensor": "output"},
    ),
    (
        ScaledOverData(DW, 2, (0,), 2),
        "param_grad up.weight is 2 × the reference: the sum over dp, or divided one time too few",
        {"factor": 2, "ranks": [0]},
    ),
    (
        ScaledOverData(DW, 0.5, (0,), 2),
        "param_grad up.weight is 1/2 of the reference: averaged over dp once more",
        {"factor": 0.5, "ranks": [0]},
    ),
    (
        ScaledOverData(DW, 2.0, (0,), 4),
        "param_grad up.weight is 2 × the reference: the 4 dp coordinates' sum, divided by another "
        "number than 4",
        {"factor": 2.0, "ranks": [0]},
    ),
    (
        ScaledOverData(DW, 2.0, (0,), 2, ("dp", "tp")),
        "param_grad up.weight is 2 × the reference: summed over dp or tp once more, or divided one "
        "time too few",
        {"axes": ["dp", "tp"]},
    ),
    (
        ScaledOverData(DW, 0.5, (0,), 2, ("dp", "ep", "tp")),
        "param_grad up.weight is 1/2 of the reference: averaged over dp, ep or tp once more",
        {"axes": ["dp", "ep", "tp"]},
    ),
    (
        SomeDataOnly(DW, 1, (0, 2), 4),
        "param_grad up.weight comes on rank 1 from the data of dp coordinates [0, 2] of 4 alone: "
        "the sum over the others is missing",
        {"rank": 1, "coordinates": [0, 2], "dp": 4},
    ),
    (
        OwnDataOnly(DW, (0,)),
        "param_grad up.weight comes from the data of each dp rank alone: the sum over dp is "
        "missing",
        {"ranks": [0]},
    ),
    (
        SummedOverData(OUT, 0, 2),
        "output is the sum over the data of all 2 dp groups: a collective runs over the world "
        "instead of the TP group",
        {"rank": 0},
    ),
    (
        SummedOverData(DW, 0, 2, mean=True, world=False),
        "param_grad up.weight is the mean over the data of all 2 dp groups: a collective runs "
        "along dp, where each rank has data of its own",
        {"mean": True, "world": False},
    ),
    (
        PiecesOverWorld(DW, 2.0, 4),
        "param_grad up.weight is 2 × the sum of the 4 ranks' different pieces: a collective runs "
        "over the world instead of along dp",
        {"factor": 2.0, "pieces": 4},
    ),
    (
        PiecesOverWorld(DW, 0.25, 4),
        "param_grad up.weight is 1/4 of the sum of the 4 ranks' different pieces: a collective "
        "runs over the world instead of along dp",
        {"factor": 0.25},
    ),
    (
        Overwritten("a.py:3", "all_reduce"),
        "all_reduce at a.py:3 overwrites a tensor that autograd has saved",
        {"where": "a.py:3"},
    ),
    (
        Overwritten("a.py:3"),
        "what was saved for backward at a.py:3 was written over before backward read it",
        {"where": "a.py:3"},
    ),
    (
        AllScaled(0.5, 7, ()),
        "every parameter's gradient is 0.5 × the reference, as over the world",
        {"factor": 0.5, "tensors": 7},
    ),
    (
        AllScaled(2, 7, ("dp", "tp")),
        "every parameter's gradient is 2 × the reference, as over dp or tp",
        {"axes": ["dp", "tp"]},
    ),
]  # fmt: skip
