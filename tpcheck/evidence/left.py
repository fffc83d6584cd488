"""What cases of a check have left behind in the processes that ran them."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.case import Case
from tpcheck.process.aspects import Left


@dataclass(frozen=True)
class LeftBehind:
    """A note on a check, not a verdict: one of its cases left the state of a process changed.

    Args:
        case: the first case that did.
        what: that state; None where only its effect was seen: the case failed after others had
            run on the same ranks, and passed on fresh ones.
        after: how many others, then.
    """

    case: Case
    what: Left | None
    after: int = 0
