"""The cases of a check that have run, each once, and which of them are failures of the check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from tpcheck.case import Case
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.known import KnownFinding
from tpcheck.runner.runner import Runner
from tpcheck.search.apart import Rows, filled
from tpcheck.search.failures import decided
from tpcheck.search.ledger import Ledger
from tpcheck.search.news import News
from tpcheck.verdict import CaseResult, Verdict


class StateLeft(Exception):
    """A case that failed after others does not fail on fresh ranks: they left something behind.

    Args:
        failed: what it came to after them.
        earlier: those that had run before it on the same ranks.
    """

    def __init__(self, failed: CaseResult, earlier: Sequence[Case]) -> None:
        super().__init__(failed.case.describe())
        self.failed, self.earlier = failed, earlier


#: Where runs are spared, a kernel's calls are made again in one of so many cases. They take three
#: times what the first calls do, and what they alone show hangs less on sizes than values do. With
#: more, what does is met late.
SPARED = 4


class Anew(Enum):
    """Which cases have as many ranks started for them as they need."""

    NONE = auto()  # they are there
    FIRST = auto()
    EACH = auto()


@dataclass(frozen=True)
class Onlooker:
    """Who follows a search.

    Args:
        ran: is told of each case that ran.
        told: whether a failure was told before: it is none of this search.
        news: is told of what else happens.
    """

    ran: Callable[[CaseResult], None] = lambda _: None
    told: Callable[[CaseResult], bool] = lambda _: False
    news: Callable[[News], None] = lambda _: None


class Trials:
    """Runs the cases of one check. What Hypothesis replays is not run again. A failure after other
    cases is one once it is seen on fresh ranks (`Search` sees to that).

    Args:
        runner: on the engine of the search.
        known: the findings that the check declares.
        real: on processes, where `runner` simulates ranks: it examines what fails.
        anew: which cases run on ranks that are started for them.
        onlooker: follows.
        sparing: after how many cases it begins, where a kernel's calls are to be made again in few
            of them, and where one fails.
    """

    def __init__(
        self,
        runner: Runner,
        known: Sequence[KnownFinding],
        real: Runner | None = None,
        anew: Anew = Anew.NONE,
        onlooker: Onlooker | None = None,
        sparing: int | None = None,
    ) -> None:
        self.runner, self.real, self.anew, self.sparing = runner, real, anew, sparing
        self.onlooker = onlooker or Onlooker()
        self.ledger = Ledger(known)
        self.results: dict[str, CaseResult] = {}  # canonical case → result, in the order they ran
        self.at: Case | None = None  # what runs now, or could not
        self._before: dict[str, int] = {}  # canonical case → cases before it on the same ranks
        self.rows = Rows()

    def end_with(self, failed: CaseResult) -> None:
        """From here on training ends with the first wrong step of this failure: what comes after
        follows from it."""
        self.runner = self.runner.until(failed)
        self.real = self.real and self.real.until(failed)

    @property
    def examiner(self) -> Runner:
        """Whose ranks are asked why a case fails: real ones, where there are any."""
        return self.real or self.runner

    def result(self, case: Case) -> CaseResult | None:
        """What the case came to, where it has run."""
        return self.results.get(self.rows.instead(case, self.results).canonical())

    def before(self, result: CaseResult) -> int:
        """How many cases had run before this one on the same ranks."""
        return self._before[result.case.canonical()]

    def left_by(self, failed: CaseResult) -> StateLeft:
        """What this failure is put down to, which fresh ranks do not have."""
        order = [result.case for result in self.results.values()]
        at = next(i for i, case in enumerate(order) if case == failed.case)
        return StateLeft(failed, order[max(0, at - self.before(failed)) : at])

    def run(self, case: Case, then: Case | None = None, *, closely: bool = True) -> CaseResult:
        """The case's result. Where a known finding covers it and it fails, it is diagnosed, too.

        Args:
            then: the case that is likely to be next.
            closely: decide what few noisy runs suspect.
        """
        case = self.rows.instead(case, self.results)
        known = self.result(case)
        if known is not None and not (closely and known.suspected):
            return known
        if not self.results or (then is not None and self.result(then) is not None):
            then = None  # a check that fails mostly does so at once
        if self.anew is Anew.EACH or (self.anew is Anew.FIRST and not self.results):
            self.runner.renew(case.world_size)
        engine = self.runner.engine
        before, starts = engine.ran, engine.starts
        self.at = case
        result = self._ran(case, then, closely)
        self.at = None
        key = result.case.canonical()
        self.results[key] = result
        self.onlooker.ran(result)
        # ranks may have been started for it; one that met the time limit twice has met it on fresh
        fresh = engine.starts > starts or result.timed_out
        self._before[key] = 0 if fresh else before
        self.ledger.enter(result, self._code(result) if self.ledger.asks_why(result) else None)
        if result.verdict is Verdict.PASS:  # thousands may: no one asks how they did
            self.results[key] = replace(result, trace=[], ended=[], ways=set())
        return result

    def _ran(self, case: Case, then: Case | None, closely: bool) -> CaseResult:
        """What a case comes to, and where it fails while it is noted which branches are taken, what
        it comes to without: code may see that it is watched. Such code is not, from then on. One
        that fails where it was spared is not, either."""
        runner = self.runner
        ran = None if self.sparing is None else self.sparing + len(self.results)
        spared = ran is not None and ran % SPARED != 0
        runner.again = not spared
        result = runner.run(case, then=then, closely=closely)
        if not filled(result):
            result = decided(lambda: runner.run(case, closely=closely), result)
        elif closely:  # else another failure is made smaller, which this is none of
            case = self.rows.note(result)
            result = decided(lambda: runner.run(case, closely=closely))
        runner.again = True
        if result.verdict is not Verdict.FAIL or not (runner.branches or spared):
            return result
        watched, runner.branches = runner.branches, False
        again = decided(lambda: runner.run(case, closely=closely))
        runner.branches = watched and again.verdict is Verdict.FAIL
        return again

    def on_real(self, case: Case) -> CaseResult:
        """What the case comes to on real ranks on which no other has run."""
        assert self.real is not None, "asked for where `runner` simulates ranks"
        real = self.real
        if real.engine.ran:
            real.renew(case.world_size)
        return decided(lambda: real.run(case))

    def fails(self, result: CaseResult) -> bool:
        """Whether it is a failure that no known finding accounts for, and that is not told yet."""
        failed = result.verdict is Verdict.FAIL and not self.ledger.explains(result)
        return failed and not self.onlooker.told(result)

    def _code(self, result: CaseResult) -> str | None:
        """The diagnosis of a failing case; None where fresh ranks, or real ones, don't see it."""
        if self.real is not None:
            result = self.on_real(result.case)
            if result.verdict is not Verdict.FAIL:
                return None
        elif self.before(result):
            self.runner.renew(result.case.world_size)
        examined = examine_failure(self.examiner, result)
        return None if examined.again is Verdict.PASS else examined.diagnosis.code
