"""The sentences of `tpcheck/causes/evident.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DX, OUT, Said
from tpcheck.causes.evident import (
    BitsDiffer,
    HoldsNaN,
    NaNOfArithmetic,
    NoGradient,
    NotTaken,
    OnOtherRanks,
    OtherDtype,
    OtherPlacement,
    OtherShape,
    OutputsNamedOtherwise,
)
from tpcheck.evidence import Elsewhere, Values
from tpcheck.vocabulary import Kind

SAID: list[Said] = [
    (NoGradient(DX, 0), "input_grad x: no gradient (None) on rank 0", {"rank": 0}),
    (
        NotTaken(DX),
        "input_grad x: the reference takes none: nothing that it returns depends on the tensor, or "
        "it detaches that, or runs under torch.no_grad; the candidate takes one",
        {},
    ),
    (
        OutputsNamedOtherwise(("output.0",), ("output",)),
        "the candidate returns output.0, the reference output",
        {"returned": ["output.0"], "wanted": ["output"]},
    ),
    (
        OnOtherRanks(OUT, Elsewhere({"pp": 0}, {"pp": 1})),
        "output is on the ranks of pp=0; the layout has it on those of pp=1 only",
        {"elsewhere": "is on the ranks of pp=0; the layout has it on those of pp=1 only"},
    ),
    (
        OtherPlacement(OUT, "Shard(0)", "Shard(1)"),
        "output: Shard(0) is not the layout's Shard(1)",
        {"placement": "Shard(0)", "expected_placement": "Shard(1)"},
    ),
    (
        OtherShape(OUT, (1, 2), (2, 2)),
        "output: shape [1, 2], expected [2, 2]",
        {"shape": [1, 2], "expected_shape": [2, 2]},
    ),
    (
        HoldsNaN(OUT, 3),
        "output has NaN in 3 elements: tpcheck fills unwritten memory with that, unless arithmetic "
        "made it (an overflow, 0/0)",
        {"nan": 3},
    ),
    (
        HoldsNaN(OUT, 3, ("_bwd:31",)),
        "output has NaN in 3 elements: tpcheck fills with that what is undefined, and _bwd:31 "
        "loads lanes that its mask leaves out, without other=; else memory that was not written, "
        "or arithmetic (an overflow, 0/0), made it",
        {"nan": 3, "undefined": ["_bwd:31"]},
    ),
    (
        HoldsNaN(OUT, 1, ("_bwd:31", "_fwd:7")),
        "output has NaN in 1 element: tpcheck fills with that what is undefined, and _bwd:31, "
        "_fwd:7 load lanes that a mask leaves out, without other=; else memory that was not "
        "written, or arithmetic (an overflow, 0/0), made it",
        {"nan": 1, "undefined": ["_bwd:31", "_fwd:7"]},
    ),
    (
        NaNOfArithmetic(OUT, 3),
        "output has NaN in 3 elements, and in none where the inputs are numbers near 1: arithmetic "
        "made it (an overflow, ∞ − ∞, 0/0)",
        {"nan": 3},
    ),
    (
        OtherDtype(OUT, Values(0, 4, dtype="float32", expected_dtype="float64")),
        "output is float32, expected float64",
        {"wrong": 0, "of": 4, "dtype": "float32", "expected_dtype": "float64"},
    ),
    (
        BitsDiffer("output", Kind.OUTPUT, (0, 1), (1,)),
        "output: ranks [0, 1] hold different bits",
        {"of": "output", "ranks": [0, 1], "differ_from_first": [1]},
    ),
]  # fmt: skip
