"""The search of one check for a counterexample, from known findings to the verdict.

Hypothesis draws and shrinks, in the driver, over warm ranks. Every case is run once: results are
kept by case, so that what Hypothesis replays is not run again. Where the search runs on threads,
real ranks (gloo) confirm every counterexample, and a sample of what passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tpcheck.check import Check
from tpcheck.diagnosis.examine import Examined
from tpcheck.errors import let_through
from tpcheck.evidence.judged import over
from tpcheck.evidence.left import LeftBehind
from tpcheck.report import reasons
from tpcheck.runner.judge import most_held
from tpcheck.runner.runner import Runner
from tpcheck.search.confirmation import Confirmation
from tpcheck.search.excluded import is_asked, to_replay
from tpcheck.search.failures import size
from tpcheck.search.hunt import Hunt
from tpcheck.search.keeper import Keeper
from tpcheck.search.kept import between_calls
from tpcheck.search.kinds import kinds
from tpcheck.search.ledger import near
from tpcheck.search.news import Begun, Explains
from tpcheck.search.options import Options
from tpcheck.search.outcome import beside, left_behind, most_used, undecided
from tpcheck.search.reach import Open
from tpcheck.search.tally import Tally
from tpcheck.search.trials import Anew, Onlooker, StateLeft, Trials
from tpcheck.search.trouble import why
from tpcheck.verdict import (
    CaseResult,
    CheckResult,
    Counterexample,
    FindingResult,
    Verdict,
)

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


class Search:
    """One check on one engine.

    Args:
        confirm: real ranks, where `engine` simulates them: a sample of what passes, and every
            counterexample, is run there, and the verdict rests on that.
        hunter: makes the hunt, as `Hunt` does.
        onlooker: follows.
    """

    def __init__(
        self,
        check: Check,
        engine: Engine,
        options: Options,
        confirm: Engine | None = None,
        *,
        hunter: Callable[..., Hunt] = Hunt,
        onlooker: Onlooker | None = None,
    ) -> None:
        if confirm is not None and check.processes:
            engine, confirm = confirm, None
        self.check, self.engine, self.options = check, engine, options
        self.hunter, self.onlooker = hunter, onlooker or Onlooker()
        self.real = Runner(check, confirm) if confirm else None
        self.runner = Runner(check, engine, branches=options.branches)
        self.keeper = Keeper(check, engine.name, options)
        self._effect: LeftBehind | None = None
        self._prepare()

    def _prepare(self, *, apart: bool = False) -> None:
        """Nothing has run yet; no case of another check on these ranks either."""
        anew = Anew.EACH if apart else Anew.FIRST if self.options.few_ranks else Anew.NONE
        if anew is Anew.NONE:
            self.runner.renew()
        runs = self.runner, self.check.known, self.real, anew, self.onlooker
        self.trials = trials = Trials(*runs, self.options.sparing)
        self.hunt = self.hunter(self.check, self.engine.ranks, self.options, trials, self._keep)
        self.tally = Tally(trials)
        self._saved = False  # whether a case of an earlier run still fails
        self._aside: list[str] = []  # why saved cases are not replayed
        self.confirmation = Confirmation(self.trials, fresh=self.options.fresh)
        self.onlooker.news(Begun())

    def run(self, deadline: float | None = None) -> CheckResult:
        """Replays what is saved, then draws; returns the check's verdict."""
        start = time.monotonic()
        if self.real is not None:
            self.real.renew()
        try:
            result = self._run(deadline)
        except StateLeft as left:
            self._effect = LeftBehind(left.failed.case, None, len(left.earlier))
            self._prepare(apart=True)
            result = self._run(deadline)
            if self.check.kernel is not None and result.verdict is Verdict.PASS:
                _keeps_something(self.runner, self.options, result, left)
        finally:
            self.runner.restore()
        if self.options.kinds:
            result.kinds = kinds(self.hunt, self.trials, draw=deadline is None)
        result.seconds = time.monotonic() - start
        return result

    def _run(self, deadline: float | None) -> CheckResult:
        """As `run`. Raises `StateLeft`, unless each case has ranks of its own."""
        met = self._find(deadline)
        if self.options.find_only and met is not None:
            return replace(self._summary(), verdict=Verdict.FAIL, reason=met.case.describe())
        found, refuted = self.confirmation.on_real_ranks(met)
        result = self._summary(failed=found is not None)
        if refuted is not None:
            _leave(result, refuted)
        if found is not None:
            self._fail(result, found)
            result.notes += [reasons.saved_before()] * self._saved
        else:
            result.notes += beside(self.trials, self.hunt)
        return result

    def _find(self, deadline: float | None) -> CaseResult | None:
        found = self._run_findings(deadline)
        if found is None and self.options.replay:
            found = self._replay()
        self.tally.draws()
        if found is not None:
            self.tally.meets(found)
        return found or self.hunt.run(deadline)

    def _keep(self, failed: CaseResult) -> None:
        """The hunt has met a failure, at the degree of a search or at a lower one."""
        self.keeper.save_at_once(failed)
        self.tally.meets(failed)

    def cut_short(self, reason: str) -> CheckResult:
        """What is known of a check that can't go on: UNKNOWN and why, unless it failed before."""
        result = self._summary()
        _leave(result, Open(reason))
        found = min((r for r in self.hunt.failing if not r.suspected), key=size, default=None)
        if found is not None:
            found, _ = self.confirmation.on_real_ranks(found)
        if found is not None:
            self._fail(result, found)
        return result

    def _fail(self, result: CheckResult, found: CaseResult) -> None:
        """Makes the result a FAIL, with this case as its counterexample."""
        self.onlooker.news(Explains())
        first = self.hunt.failing[0] if self.hunt.failing else found
        found, examined = self.confirmation.settled(found, first)
        result.counterexample = self._counterexample(found, first, examined)
        known = examined.known or near(self.check, found.case, examined.diagnosis.code)
        result.counterexample.known = known
        self.keeper.forget_larger(found)
        result.verdict = Verdict.FAIL
        if (trouble := self.confirmation.trouble) is not None:
            result.trouble, result.reason = True, trouble

    # ---- before a case is drawn, and after

    def _run_findings(self, deadline: float | None) -> CaseResult | None:
        """The case of each known finding that this run can reach."""
        for finding in self.trials.ledger.active():
            case = finding.case
            late = deadline is not None and time.monotonic() > deadline
            asked = is_asked(self.check, case, self.options)
            if late or not asked or case.world_size > self.engine.ranks:
                continue
            result = self.trials.run(case)
            if self.trials.fails(result):
                return result
        return None

    def _replay(self) -> CaseResult | None:
        """Saved counterexamples first; those that no longer fail are forgotten. One that the check
        excludes by now, or that needs more ranks, is told."""
        corpus = self.options.corpus
        for saved in to_replay(self.check, corpus, self.engine.ranks, self._aside):
            assert corpus is not None
            try:
                result = self.trials.run(saved.case)
            except BaseException as error:  # it is no longer a case of this check
                let_through(error)
                self._aside.append(corpus.aside(saved.id, why(error)))
                continue
            if self.trials.fails(result):
                self._saved = not self.keeper.has(saved.case)
                return result
            if result.verdict is not Verdict.FAIL:
                corpus.remove(saved.id)
        return None

    # ---- telling

    def _counterexample(
        self, found: CaseResult, first: CaseResult, examined: Examined
    ) -> Counterexample:
        identity = self.keeper.save(found, examined.diagnosis)
        return Counterexample(
            id=identity,
            case=found.case,
            mismatches=examined.mismatches,
            diagnosis=examined.diagnosis,
            engine=found.engine,
            first_divergence=examined.first_divergence,
            reproduce=self.keeper.reproduce(identity, found.case),
            found_after=self.tally.found_after(first),
            trace=dict(zip(found.ended, found.trace, strict=True)),
            printed=found.printed,
            pictures=examined.pictures,
        )

    def _summary(self, *, failed: bool = False) -> CheckResult:
        """What ran, with the verdict that it comes to where no counterexample was found."""
        ran = [result for result in self.trials.results.values() if result.counts]
        looked = self.tally.looked()
        judged = over(r.judged for r in ran if r.verdict is not Verdict.FAIL)
        result = CheckResult(
            name=self.check.title,
            verdict=Verdict.PASS,
            engine=self.engine.name,
            examples=len(looked),
            smaller=len(ran) - len(looked),
            asked=self.options.examples if self.hunt.cut else None,
            dtypes=sorted({r.case.dtype for r in looked}),
            tp_degrees=sorted({r.case.tp for r in looked}),
            usage=most_used(ran),
            bytes=most_held(*(r.bytes for r in ran)),
            findings=self._findings(),
            judged=judged,
            left=left_behind(self.trials.results.values(), self._effect),
            notes=list(self._aside),
        )
        if not failed and (left := undecided(self.trials, self.hunt, ran, judged)) is not None:
            _leave(result, left)
        return result

    def _findings(self) -> list[FindingResult]:
        """What became of the known findings, each with its smallest case."""
        ledger = self.trials.ledger
        rows = ledger.report()
        for finding, row in zip(ledger.findings, rows, strict=True):
            if finding in ledger.failed:
                failed = ledger.failed[finding]
                dullest = min(failed, key=size)
                told = dullest, failed[0], self.confirmation.examined(dullest)
                row.counterexample = self._counterexample(*told)
        return rows


def _leave(result: CheckResult, why: Open) -> None:
    """Makes it UNKNOWN."""
    result.verdict, result.reason = Verdict.UNKNOWN, why.reason
    result.more, result.about = why.more, why.case


def _keeps_something(
    runner: Runner, options: Options, result: CheckResult, left: StateLeft
) -> None:
    """A kernel whose cases are right alone, and not one after the other, has no PASS."""
    found = between_calls(runner, left.failed, left.earlier)
    if found is None:
        result.verdict = Verdict.UNKNOWN
        result.reason = reasons.wrong_after_others(left.failed.case, len(left.earlier))
        return
    found.reproduce = f"run this again with seed {options.seed}"
    result.verdict, result.counterexample = Verdict.FAIL, found
