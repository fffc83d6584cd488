"""The known finding that a failure is, or stands beside. Never a guess: it is declared beside the
check, or the package's own line is seen at work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Likeness(StrEnum):
    """What a failure and a known finding have in common."""

    SEEN = "seen"  # the place in the package, and what it does there
    DECLARED = "declared"  # the check declares it for this case, with this diagnosis
    OTHER_CASE = "other-case"  # it declares it with this diagnosis, and not for this case
    OTHER_DIAGNOSIS = "other-diagnosis"  # and for this case, with another diagnosis


@dataclass(frozen=True)
class KnownAs:
    """A known finding.

    Args:
        page: where it is written up.
        package, releases: that have it, as in a `KnownFinding`.
        installed: the release here.
        at: the place in the package, where it was seen there: `moe_utils.py:1192 in forward`.
    """

    page: str
    package: str
    releases: str
    installed: str
    how: Likeness
    at: str = ""
