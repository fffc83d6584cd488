"""The sentences of `tpcheck/causes/targets.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import DX, OUT, Said
from tpcheck.causes.targets import LogitsOfForeignTargets, LossOfOtherTargets, TargetsColumn

SAID: list[Said] = [
    (
        LossOfOtherTargets(OUT, 1, "targets", 5, 4),
        "output of rank 1 is that of other targets: of 4 in the place of 5, say",
        {"given": 5, "taken": 4},
    ),
    (
        LogitsOfForeignTargets(OUT, "logits", "targets"),
        "output: ranks that do not have the column of a token's targets add one of their own "
        "logits (right where these are 0)",
        {"logits": "logits", "ids": "targets"},
    ),
    (
        TargetsColumn(DX, 2, 0, 3),
        "input_grad x: the target's own term is missing from its column 0 times and in another "
        "column 3 times, in 2 rows",
        {"rows": 2, "lacking": 0, "added": 3},
    ),
]  # fmt: skip
