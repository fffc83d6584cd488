"""What a failure rests on before it is told: ranks on which nothing else has run, and real ones."""

from __future__ import annotations

from tpcheck.diagnosis.examine import Examined, examine_failure, unexplained
from tpcheck.errors import InvalidArgument
from tpcheck.report import reasons
from tpcheck.search.failures import decided
from tpcheck.search.reach import Open
from tpcheck.search.trials import Trials
from tpcheck.search.trouble import why
from tpcheck.verdict import CaseResult, Verdict


class Confirmation:
    """Of the failures that one search has seen.

    Args:
        trials: the cases that it ran.
        fresh: as `Options.fresh`.
    """

    def __init__(self, trials: Trials, *, fresh: bool = True) -> None:
        self.trials, self.fresh = trials, fresh
        self.trouble: str | None = None  # why a failure could not be examined

    def settled(self, found: CaseResult, first: CaseResult) -> tuple[CaseResult, Examined]:
        """The case to be told, and why it fails: the smallest that fails on fresh ranks.

        Args:
            found: the smallest one.
            first: the one that was met first.

        Raises:
            StateLeft: neither of them does.
        """
        for result in [found] if found.case == first.case else [found, first]:
            after = self._after(result, first)
            if after:
                self.trials.runner.renew(result.case.world_size)
            examined = self.examined(result)
            if not after or self._again(result, examined) is Verdict.FAIL:
                return result, examined
        raise self.trials.left_by(first)

    def _after(self, result: CaseResult, first: CaseResult) -> int:
        """How many cases ran before this one on the same ranks, as far as that is asked."""
        if self.trials.real is not None:
            return 0  # a case of real ranks has run on nothing else
        if not self.fresh and not self.trials.before(first):
            return 0
        return self.trials.before(result)

    def _again(self, result: CaseResult, examined: Examined) -> Verdict:
        """What the case comes to on fresh ranks, on which nothing but its examination has run."""
        return examined.again or decided(lambda: self.trials.runner.run(result.case)).verdict

    def examined(self, found: CaseResult) -> Examined:
        """Why it fails; where that can't be said (its budget raises, say) the failure stands."""
        try:
            return examine_failure(self.trials.examiner, found)
        except InvalidArgument as error:
            self.trouble = why(error)
            return unexplained(found)

    def on_real_ranks(self, found: CaseResult | None) -> tuple[CaseResult | None, Open | None]:
        """The counterexample as real ranks see it, where others are simulated, or why there is no
        verdict.

        Raises:
            StateLeft: simulated ones do not see it either, once they are fresh.
        """
        if (real := self.trials.real) is None:
            return found, None
        if found is None:
            passed = [r for r in self.trials.results.values() if r.verdict is not Verdict.FAIL]
            sample = {result.case.tp: result.case for result in passed}
            ran = [self.trials.on_real(case) for case in sample.values()]
            failed = next((r for r in ran if r.verdict is Verdict.FAIL), None)
            unknown = (Open(r.unknown, case=r.case) for r in ran if r.unknown)
            return failed, None if failed else next(unknown, None)
        again = self.trials.on_real(found.case)
        if again.verdict is Verdict.FAIL:
            return again, None
        if again.verdict is Verdict.UNKNOWN:
            return None, Open(again.unknown or "", case=found.case)
        if self.trials.before(found):
            self.trials.runner.renew(found.case.world_size)
            if self.trials.runner.run(found.case).verdict is not Verdict.FAIL:
                raise self.trials.left_by(found)
        why_not = reasons.not_confirmed(found, real=real.engine.name)
        return None, Open(why_not, case=found.case)
