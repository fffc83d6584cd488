"""In which order checks run, and how long each may take.

Without a budget of time each check runs once, to its end. Under one it is first looked at for its
share of the time: whether it fails. Failures are made smaller and explained once all checks have
had their share: that takes as long as it takes, and would leave nothing for those that come later.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, replace

from tpcheck.report import reasons
from tpcheck.search.options import Options
from tpcheck.verdict import CheckResult, Verdict

#: The latest time that `Options` hold: some ages.
LATEST = 2.0**61


@dataclass(frozen=True)
class Job:
    """What is to be done with a check.

    Args:
        check: its number.
        deadline: when no further case is drawn, on the clock of `time.monotonic`, which all
            processes share; None for no limit.
        find_only: a failure is told as it is met, not made smaller, nor explained.
        shrink: a failure is made smaller.
        end: when the time of all checks is up; until then a first case may be drawn after the
            deadline, too.
    """

    check: int
    deadline: float | None = None
    find_only: bool = False
    shrink: bool = True
    end: float | None = None

    def options(self, of_run: Options) -> Options:
        """Those of the search."""
        shrink = of_run.shrink_cases if self.shrink and not self.find_only else 0
        return replace(of_run, find_only=self.find_only, shrink_cases=shrink, end=self.end)


class Schedule:
    """The jobs of a run.

    Args:
        count: how many checks there are.
        budget: seconds for all of them from the first job on, or None.
        at_once: how many run side by side.
    """

    def __init__(self, count: int, budget: float | None, at_once: int = 1) -> None:
        self._budget = budget
        self._end: float | None = None
        self._at_once = at_once
        self._waiting = deque(range(count))
        self._failed: deque[int] = deque()  # those that wait to be explained
        self._found: dict[int, CheckResult] = {}  # check → its failure as it was met

    def next(self) -> Job | None:
        """The next job; None where there is none, or none yet: failures wait until all checks have
        been given their share."""
        if self._end is None and self._budget is not None:
            self._end = min(time.monotonic() + self._budget, LATEST)
        if self._waiting:
            until = share(self._end, math.ceil(len(self._waiting) / self._at_once))
            index = self._waiting.popleft()
            return Job(index, until, find_only=until is not None, end=self._end)
        if self._failed:
            assert self._end is not None, "without a budget nothing waits to be explained"
            return Job(self._failed.popleft(), shrink=time.monotonic() < self._end)
        return None

    def ended(self, job: Job, result: CheckResult) -> CheckResult | None:
        """What the check came to; None where it failed, and that is yet to be explained."""
        if job.find_only and result.verdict is Verdict.FAIL:
            self._failed.append(job.check)
            self._found[job.check] = result
            return None
        found = self._found.pop(job.check, None)
        if found is None:
            return result
        result.seconds += found.seconds
        if result.verdict is Verdict.PASS:
            result.verdict, result.reason = Verdict.UNKNOWN, reasons.not_again(found.reason)
        elif result.verdict is Verdict.UNKNOWN:
            result.reason = reasons.not_explained(found.reason, result.reason)
        return result


def share(deadline: float | None, turns: int) -> float | None:
    """When a turn ends, of those that are left; None where no time is set."""
    if deadline is None:
        return None
    now = time.monotonic()
    return now + max(0.0, deadline - now) / turns
