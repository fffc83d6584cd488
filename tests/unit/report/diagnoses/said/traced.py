"""The sentences of `tpcheck/causes/traced.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DX, Said
from tpcheck.causes.traced import CollectiveLeftOut, SummedInPart
from tpcheck.vocabulary import Phase

SUMS = ("all_reduce", "reduce_scatter")

SAID: list[Said] = [
    (
        CollectiveLeftOut(DX, Phase.BACKWARD, SUMS, (), SUMS),
        "input_grad x: backward ran no all_reduce or reduce_scatter",
        {"due": ["all_reduce", "reduce_scatter"], "ran": []},
    ),
    (
        CollectiveLeftOut(DX, Phase.BACKWARD, ("all_gather",), ("barrier",), ("all_gather",)),
        "input_grad x: backward ran no all_gather: only this rank's rows count",
        {"due": ["all_gather"], "ran": ["barrier"]},
    ),
    (
        SummedInPart(DX, Phase.BACKWARD, 8, 4),
        "input_grad x has 8 elements, and backward sums 4 over the ranks: the others' terms are "
        "lost",
        {"due": 8, "ran": 4},
    ),
]  # fmt: skip
