"""Runs one case of one check on an engine and puts the ranks' evidence together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tpcheck.budget import Budget
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.effort import CONFIRM, Effort
from tpcheck.oracle.pose import LIMIT, Posed, pose
from tpcheck.plan.findings import mismatches
from tpcheck.process import guard
from tpcheck.process.aspects import Left
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.pickled import sent
from tpcheck.report import reasons
from tpcheck.runner.asked import Asked
from tpcheck.runner.files import CaseFiles, written
from tpcheck.runner.judge import (
    alarms,
    differing,
    judge,
    left_changed,
    still_building,
    undecided,
)
from tpcheck.runner.judged import judged, placed
from tpcheck.runner.masks import require_masks
from tpcheck.runner.messages import lost_messages
from tpcheck.runner.posing import FirstSteps, Posing, first_steps
from tpcheck.runner.readings import may_be_misread, untried
from tpcheck.runner.required import require_outputs, require_tensors
from tpcheck.runner.saving import require_saver, resumed, save, saving
from tpcheck.runner.second_look import doubtful, look_again, of_few_runs, screened
from tpcheck.runner.sent import noted, of_case, parts_of, taught
from tpcheck.tensors.names import Pass
from tpcheck.tensors.readings import Reading
from tpcheck.verdict import CaseResult, Mismatch, Verdict

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine


class Runner:
    """One check on one engine; keeps what the ranks need to know of it. `branches`: whether it is
    noted which the candidate's Python takes; `again`: whether a kernel's calls are made again."""

    def __init__(self, check: Check, engine: Engine, *, branches: bool = False) -> None:
        self.check, self.engine, self.branches, self.again = check, engine, branches, True
        try:
            blob = sent(parts_of(check), check)
        except Exception as error:
            raise InvalidArgument(
                f"the candidate can't be sent to the ranks: {error}; let it close "
                "over nothing that can't be pickled"
            ) from None
        self.taught = taught(blob, engine, trains=check.spec.training is not None)
        self._key = self.taught.key
        self.asked = Asked(check, engine.kind.device)
        self._guard = guard.of_driver()
        self._posing = Posing(self._pose, self.restore)
        self.first = FirstSteps(check.spec)
        #: Failing case → how its masks are to be read: in the likely way, unless another was found.
        self._read: dict[str, Mapping[str, Reading]] = {}
        self._slow: str | None = None  # why no case can be decided: `build` met its limit

    def until(self, failed: CaseResult) -> Runner:
        """This, or one that ends training with the first wrong step: what comes after follows."""
        training, steps = self.check.spec.training, failed.steps
        if training is None or steps is None or steps >= training.steps:
            return self
        spec = first_steps(self.check.spec, steps)
        short = Runner(replace(self.check, spec=spec, overrides={}), self.engine)
        short.first = self.first
        return short

    def run(
        self,
        case: Case,
        *,
        then: Case | None = None,
        closely: bool = True,
        dump: Path | None = None,
        ones: bool = False,
        others: bool = False,
    ) -> CaseResult:
        """Poses the case, runs it on the ranks, judges.

        Args:
            then: the case that is likely to be next: it is posed while the ranks work.
            closely: judge what few noisy runs suspect under the bounds of many.
            dump: a folder for every rank's tensors.
            ones: cotangents of ones, in place of random ones.
            others: say also which other rules alarm (`CaseResult.alarms`).

        Raises:
            InvalidArgument: the case can't be (its spec, layout or budget says so), or the engine
                is too small; nothing of the candidate has run then.
        """
        self.engine.require(case)
        require_saver(self.check, case)
        self.engine.require(case.when_saved)
        if ones:
            posed, left = self._pose(case, ones=True), self.restore()
        else:
            posed, left = self._posing.take(case)
        require_outputs(self.check.kernel, posed)
        require_tensors(self.check.spec, posed)
        require_masks(self.check, self.engine.kind, posed)
        result = self.execute(posed, then=then, closely=closely, dump=dump, others=others)
        result.left = left + result.left
        return result

    def execute(
        self,
        posed: Posed,
        *,
        then: Case | None = None,
        closely: bool = True,
        dump: Path | None = None,
        watch: Pass | None = None,
        follow: bool = False,
        eager: bool = False,
        configuration: int | None = None,
        others: bool = False,
    ) -> CaseResult:
        """Runs a posed case: the same one may run on several engines.

        Args:
            then, closely, dump, others: as `run` takes them.
            watch: the pass whose module boundaries are dumped, too.
            follow: note the module of collectives in backward, too (those in forward always do).
            eager: run what the candidate compiles eagerly, as is done where boundaries are watched.
            configuration: index of the configuration that autotuned kernels run in.
        """
        about: dict[str, Any] = {"closely": closely, "others": others, "eager": eager}
        about |= {"follow": follow, "configuration": configuration}
        posed = of_few_runs(posed) if others else posed  # rules judge by the reference's own result
        read = self._read.get(key := posed.case.canonical(), {})
        result = self._once(posed, then=then, dump=dump, watch=watch, readings=read, **about)
        if key in self._read or not may_be_misread(result):
            return result
        if (found := _read_otherwise(self, posed, result, about)) is not None:
            self._read[key], again = found
            return replace(again, left=result.left + again.left)
        if closely:
            self._read[key] = {}
        return result

    def _once(
        self,
        posed: Posed,
        *,
        then: Case | None = None,
        closely: bool,
        dump: Path | None = None,
        watch: Pass | None = None,
        follow: bool,
        eager: bool,
        configuration: int | None,
        others: bool,
        readings: Mapping[str, Reading] = MappingProxyType({}),
    ) -> CaseResult:
        """As `execute`, with masks read in one way."""
        if self._slow is not None:
            return CaseResult(posed.case, self.engine.name, unknown=self._slow)
        saver, posed = saving(self.check, posed, self.limit), resumed(self.check, posed)
        left = self.restore()
        ranks = max(p.case.world_size for p in (posed, saver or posed))
        self.engine.teach(self.taught, ranks)
        allowed, plan = self.asked.of(posed.case, self.limit)
        with written(self.engine, posed.problems, own=others) as files:
            if saver is not None:
                saved = self._judge(saver, save(self.engine, self._key, saver, files))
                left += saved.left
                if saved.verdict is not Verdict.PASS:
                    return replace(saved, case=posed.case, saving=saver.case, left=left)
                self.engine.teach(self.taught, ranks)  # which may be new
            work = Work(
                **of_case(posed, files),
                checkpoint=str(files.checkpoint) if saver else "",
                plan=plan.promised if plan else None,
                dump=str(dump) if dump else "",
                watch=watch,
                follow=follow,
                eager=eager or watch is not None or bool(posed.problems[0].masks),
                rules=others,
                configuration=configuration,
                readings=dict(readings),
                epoch=self.engine.next_epoch(),
                **noted(allowed, branches=self.branches, again=self.again),
            )
            meanwhile = None if then is None else partial(self._posing.prepare, then)
            outcomes = self.engine.run(self._key, work, meanwhile)
            reports = [o for o in outcomes if isinstance(o, RankReport)]
            posed = screened(posed, reports, files.suspects, closely=closely)
            doubted = len(reports) == len(outcomes) and doubtful(posed, reports)
            confirmed = _confirmed(self, posed, reports, files) if doubted and closely else None
        if (result := self._judge(posed, outcomes, allowed)).unknown is not None:
            return result
        result.left, result.alarms = left + result.left, alarms(outcomes) if others else set()
        if plan:
            result.mismatches = mismatches(plan.findings, 0) + result.mismatches
        result.looked_again, result.confirmed = confirmed is not None, _closest(confirmed)
        result.suspected = doubted and not closely
        result.judged = judged(posed, reports, confirmed)
        result.placed = placed(posed, reports) if result.mismatches else {}
        result.readings = untried(reports, result.steps) if posed.problems[0].masks else []
        result.unknown = None if result.counts else reasons.nothing_judged(result.judged)
        return result

    def _judge(
        self, posed: Posed, outcomes: list[RankReport | Mismatch], allowed: Budget | None = None
    ) -> CaseResult:
        """All ranks' evidence; the next case does not run in what they left changed."""
        why = undecided(outcomes)
        self._slow = why if still_building(outcomes) is not None else None
        if why is not None:
            return CaseResult(posed.case, self.engine.name, unknown=why)
        result = judge(posed, self.engine.name, outcomes, allowed)
        reports = [o for o in outcomes if isinstance(o, RankReport)]
        result.left, result.printed = left_changed(reports), self.engine.printed
        if lost_messages(reports) or not all(left.restored for left in result.left):
            self.engine.kill()  # the next case would receive them, or run in what was left
        return result

    def renew(self, ranks: int | None = None) -> None:
        """Has the next case run on ranks on which nothing has run; does not wait for them.

        Args:
            ranks: how many to start, where the next cases are likely to need no more.
        """
        self.engine.renew(self.taught, ranks)

    def restore(self) -> list[Left]:
        """Puts back what the spec's own code has changed of this process since; returns what."""
        return [replace(left, driver=True) for left in self._guard.restore()]

    @property
    def limit(self) -> float:
        """Seconds that the reference may take."""
        return max(LIMIT, 2 * self.engine.time_limit)

    def _pose(self, case: Case, *, ones: bool = False) -> Posed:
        return pose(self.check.spec, case, None, ones=ones, limit=self.limit)


def _read_otherwise(
    runner: Runner, posed: Posed, failed: CaseResult, about: Mapping[str, Any]
) -> tuple[Mapping[str, Reading], CaseResult] | None:
    """The first way to read its masks under which the case does not fail, and what it comes to; of
    training those come in question under which the same step does not."""
    short, few = runner.until(failed), posed
    if short is not runner and failed.readings:
        few = short._pose(posed.case, ones=posed.problems[0].ones)
    for readings in failed.readings:
        if short is not runner:
            first = short._once(few, readings=readings, **about)
            if first.verdict is Verdict.FAIL:
                continue
        again = runner._once(posed, readings=readings, **about)
        if again.verdict is not Verdict.FAIL:
            return readings, again
    return None


def _confirmed(
    runner: Runner, posed: Posed, reports: list[RankReport], files: CaseFiles
) -> Posed | None:
    """The case as closer bounds decided it; None where they have nothing to decide: what follows
    from replicas that differ, or from masks that are not coordinated, stays."""
    until = math.inf if runner.check.spec.training is None else differing(posed, reports)
    if not doubtful(posed, reports, until):
        return None
    return look_again(partial(_closely, runner, posed), reports, files.suspects, until)


def _closely(runner: Runner, posed: Posed, effort: Effort, steps: int) -> Posed:
    training = runner.check.spec.training
    if training is not None and steps < training.steps:
        return runner.first.closely(posed, effort, steps, runner.limit)
    if posed.problems[0].ones:  # what is kept has others
        assert posed.closely is not None, "posed by `pose`"
        return posed.closely(effort)
    return runner._posing.closely(posed, effort)


def _closest(confirmed: Posed | None) -> bool:
    """Whether the closest bounds were needed."""
    return confirmed is not None and confirmed.effort is CONFIRM
