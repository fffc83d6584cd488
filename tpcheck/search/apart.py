"""Cases whose rows are gigabytes apart, of functions that fill what lies between them.

That memory is reserved and not used (`tensors.strides`). The backward of `torch.as_strided`, say,
fills as much: it takes all the time of a case, or more memory than there is, which says nothing of
whether the function is right.
"""

from __future__ import annotations

import signal
from collections.abc import Container
from dataclasses import replace

from tpcheck.case import Case
from tpcheck.evidence import Died, Raised, Stuck
from tpcheck.verdict import CaseResult, Mismatch
from tpcheck.vocabulary import Impasse

#: The formats in which rows may be.
APART = ("giant", "mixed")
#: Bytes that a rank holds at least where it fills them: those between two rows of bfloat16.
FILLED = 2**31


def near(case: Case) -> Case:
    """The same numbers, one behind the other."""
    return replace(case, memory="contiguous") if case.memory in APART else case


def filled(result: CaseResult) -> bool:
    """Whether all that is against a case is what filling them would bring about: a rank met the
    time limit with gigabytes in its memory, was killed, as for want of memory, or raised where the
    machine does not have as much."""
    causes = result.causes if result.case.memory in APART else []
    return bool(causes) and all(map(_by_memory, causes))


class Rows:
    """Which cases of a check run with their rows one behind the other, as one that filled what lies
    between them has shown."""

    def __init__(self) -> None:
        #: The first case that filled it.
        self.filled: Case | None = None
        self._at_cost = False  # whether that took all of a case's time, or a rank

    def instead(self, case: Case, ran: Container[str]) -> Case:
        """The case that runs for this one, or has run.

        Args:
            ran: the cases that have, in their canonical form.
        """
        if self.filled is None or case.canonical() in ran:
            return case
        close = near(case)
        return close if self._at_cost or close.canonical() in ran else case

    def note(self, result: CaseResult) -> Case:
        """Of a case that filled it: the one that is to run."""
        self._at_cost |= any(not isinstance(m.detail, Raised) for m in result.causes)
        self.filled = self.filled or result.case
        return near(result.case)


def _by_memory(mismatch: Mismatch) -> bool:
    match mismatch.detail:
        case Stuck(why=Impasse.TOO_LONG, held=int(held)):
            return held >= FILLED
        case Died(status=status):
            return status == -signal.SIGKILL
        case Raised(starved=starved):
            return starved
    return False
