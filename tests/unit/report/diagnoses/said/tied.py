"""The sentences of `tpcheck/causes/tied.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DW, Said
from tpcheck.causes.tied import TiedSplit, TiedSummedOverAxis, TiedUnsummed, UsesOfTied

SAID: list[Said] = [
    (
        TiedUnsummed(("a", "b")),
        "a and b are one tensor: its gradient is the sum of theirs",
        {"names": ["a", "b"]},
    ),
    (
        TiedSummedOverAxis(("a", "b"), "tp"),
        "a and b are one tensor, whose gradient is summed over tp, not over them",
        {"names": ["a", "b"], "axis": "tp"},
    ),
    (
        TiedSplit(("a", "b")),
        "a and b are one tensor in the reference, and here each has its own use's gradient",
        {"names": ["a", "b"]},
    ),
    (
        UsesOfTied(DW, {"a": 0.0, "b": 1.0}),
        "param_grad up.weight does not have each use of the tensor once: 0 × as a, 1 × as b",
        {"times": {"a": 0.0, "b": 1.0}},
    ),
]  # fmt: skip
