"""How closely bounds are measured: most cases by the least that they can be, `FLOOR`; one with
suspects by few noisy runs, `SCREEN`, then by `CLOSER`, which decides most wrong ones, and by
`CONFIRM`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpcheck.bounds.limits import FALSE_ALARM, SUSPICION


@dataclass(frozen=True)
class Effort:
    """How many noisy runs, and which false-alarm probability.

    Args:
        runs: noisy runs, by dtype.
        strained: antithetic pairs of runs, the same errors enlarged and mirrored.
        chance: of an alarm over a correct tensor.
        patience: how many times as long as SCREEN it may take.
    """

    runs: Mapping[str, int]
    strained: int
    chance: float
    patience: int = 1

    def count(self, dtype: str) -> int:
        """How many runs that is in all."""
        return self.runs[dtype] + 2 * self.strained


#: Without a noisy run: σ is what one run in the case's dtype shows (`bounds/floor`), and limits are
#: those of a known σ. What is within them is right under any other effort.
FLOOR = Effort({"float64": 0, "float32": 0, "bfloat16": 0, "float16": 0}, 0, FALSE_ALARM)

#: Of a case with suspects, and of one that can't be looked at so. Each run costs another forward
#: and backward of the reference. Fewer, and the limits of small tensors grow without bound
#: (Student's t); more, and all such cases pay for what few need. The half precisions have more,
#: since their bounds are the ones that faults hide in.
SCREEN = Effort({"float64": 2, "float32": 3, "bfloat16": 4, "float16": 4}, 0, SUSPICION)

#: Of a case with suspects, first. Its limits are CONFIRM's, wider by what fewer runs leave unknown
#: (Student's t): if every suspect is outside of them, more runs would change nothing. With fewer,
#: more cases need CONFIRM, too; with more, a wrong case costs what CONFIRM does.
CLOSER = Effort(
    {"float64": 8, "float32": 10, "bfloat16": 14, "float16": 14}, 8, FALSE_ALARM, patience=12
)

#: Of a case of which CLOSER clears a suspect. Enough that limits with a chance of 1e-9 are near
#: those of a known σ; fewer, and real but small faults are cleared. The antithetic pairs are there
#: for jumps: fewer of them meet fewer, and a jump that is not met raises a false alarm.
CONFIRM = Effort(
    {"float64": 24, "float32": 32, "bfloat16": 48, "float16": 48}, 8, FALSE_ALARM, patience=20
)
