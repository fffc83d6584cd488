"""How many cases a search took: to find its first failure, and to make that smaller."""

from __future__ import annotations

from tpcheck.search.news import Met
from tpcheck.search.trials import Trials
from tpcheck.verdict import CaseResult


class Tally:
    """Of the cases of one search, in the order in which they ran.

    Args:
        trials: has them.
    """

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self._before = 0  # cases that ran before the first was drawn
        self._looked: int | None = None  # those up to the first failure; None before there is one

    def draws(self) -> None:
        """From here on cases are drawn."""
        self._before = len(self.trials.results)

    def meets(self, failed: CaseResult) -> None:
        """A failure, of a search or at a lower degree. What runs after the first one does not look
        for one."""
        if self._looked is None:
            self._looked = len(self.trials.results)
            tensor = failed.causes[0].tensor if failed.causes else "?"
            self.trials.onlooker.news(Met(failed.case, tensor, self._looked))

    def looked(self) -> list[CaseResult]:
        """Those that looked for a failure, and count."""
        ran = list(self.trials.results.values())[: self._looked]
        return [result for result in ran if result.counts]

    def found_after(self, first: CaseResult) -> int:
        """How many cases were drawn up to the first that failed, and with it; those drawn later,
        to shrink it or at lower degrees, don't count. 0 for a case that was not drawn."""
        order = list(self.trials.results)
        return max(0, order.index(first.case.canonical()) + 1 - self._before)
