"""The smallest faults that were found, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Threshold:
    """What was measured of one subject, degree, dtype and fault: quantiles over `runs` seeds of
    the least ε found (`inf` where none was)."""

    subject: str
    tp: int
    dtype: str
    fault: str
    runs: int
    median: float
    p99: float

    def to_dict(self) -> dict[str, Any]:
        return {k: str(v) if v == math.inf else v for k, v in asdict(self).items()}
