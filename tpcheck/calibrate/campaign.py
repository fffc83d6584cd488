"""The campaign: random cases of correct candidates, how much of its bound each uses, and alarms.

It goes round all (check, degree, dtype), a few cases of each at a time, so that a part of it is a
fair sample. Each finished unit is a line of the state file, and a later run goes on from there.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hypothesis.errors import HypothesisException

from tpcheck.calibrate.state import State
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.figures.alarms import Summary, Unit, summary
from tpcheck.known import covering
from tpcheck.runner.runner import Runner
from tpcheck.search import drawing
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.drawn import strategy_of
from tpcheck.search.failures import decided
from tpcheck.search.session import Session
from tpcheck.search.trouble import why
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Code

if TYPE_CHECKING:
    from tpcheck.engines.engine import Engine

#: Cases of one (check, degree, dtype) in a row. With more, a short campaign is not a fair sample;
#: with fewer, each sample begins with the dullest case more often.
UNIT = 10


class Campaign:
    """Runs what is left of a campaign.

    Args:
        checks: of correct candidates; any FAIL is a false alarm (or a fault to be looked into).
        state: what is done, and what is to be drawn from.
        corpus: where cases that alarm are kept, for `tpcheck replay`.
        real: processes, for checks whose ranks can't share one; by default `engine`.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        engine: Engine,
        state: State,
        corpus: Corpus,
        real: Engine | None = None,
    ) -> None:
        self.checks = {check.title: check for check in checks}
        if len(self.checks) < len(checks):
            titles = Counter(check.title for check in checks)
            twice = next(title for title, count in titles.items() if count > 1)
            raise InvalidArgument(
                f"two checks are called {twice!r}, and the state file tells them apart by name "
                "only; give one of them, or Check(name=…)"
            )
        self.engine, self.state, self.corpus = engine, state, corpus
        self.real = real or engine
        self.troubled: dict[str, str] = {}  # check → why it can't run
        self._runners: dict[str, Runner] = {}

    def run(
        self,
        cases: int,
        *,
        until: float | None = None,
        finished: Callable[[Unit], None] | None = None,
    ) -> Summary:
        """Goes on until `cases` cases are decided, or `until` (of `time.monotonic`).

        A check that can't run is `troubled`, and the others go on.

        Raises:
            InvalidArgument: no check has a case in the grid, or two have one name.
        """
        done = sum(u.cases for u in self._own())
        for unit in self._remaining():
            if done >= cases or (until is not None and time.monotonic() > until):
                break
            try:
                ran = self._run(*unit)
            except BaseException as error:  # of one check: the others go on
                let_through(error)
                self.troubled[unit[0]] = why(error)
                if len(self.troubled) == len(self.checks) or self._gone():
                    break
                continue
            self.state.add(ran)
            done += ran.cases
            if finished:
                finished(ran)
        return self.summary()

    def summary(self) -> Summary:
        """What has come out so far."""
        return summary(self._own())

    def _gone(self) -> bool:
        """Whether no case can run any more."""
        return Session(self.engine).why_gone() is not None

    def _own(self) -> list[Unit]:
        return [unit for unit in self.state.units.values() if unit.check in self.checks]

    def _remaining(self) -> Iterator[tuple[str, int, str, int]]:
        """Round after round, each in an order of its own, so that a few cases are spread as many
        are; what had no case in the first round has none later."""
        grid = self.state.grid
        kinds = list(itertools.product(self.checks, grid.degrees, grid.dtypes))
        for number in itertools.count():
            rng = random.Random(f"{grid.seed} {number}")
            for kind in rng.sample(kinds, len(kinds)):
                if (*kind, number) not in self.state.units and kind[0] not in self.troubled:
                    yield (*kind, number)
            kinds = [kind for kind in kinds if kind[0] not in self.troubled]
            if number == 0:
                kinds = [kind for kind in kinds if self.state.units[*kind, 0].decidable]
            if not kinds:
                raise InvalidArgument("no check has a case at these degrees and dtypes")

    def _run(self, name: str, tp: int, dtype: str, number: int) -> Unit:
        check, begun = self.checks[name], time.monotonic()
        usage: list[float] = []
        alarms: list[str] = []
        undecided = known = 0
        for case in self._draw(check, tp, dtype, number):
            if covering(check.known, case):
                known += 1
                continue
            result = self._judge(check, case)
            if result.verdict is Verdict.FAIL:
                alarms.append(self._keep(check, result))
            elif result.verdict is Verdict.PASS:
                usage.append(round(result.usage, 5))
            else:
                undecided += 1
        seconds = round(time.monotonic() - begun, 3)
        return Unit(name, tp, dtype, number, usage, alarms, undecided, known, seconds)

    def _draw(self, check: Check, tp: int, dtype: str, number: int) -> list[Case]:
        key = f"{self.state.grid.seed} {check.title} {tp} {dtype} {number}"
        if not callable(check.spec.cases):
            listed = [case for case in check.spec.cases if (case.tp, case.dtype) == (tp, dtype)]
            return drawing.reseeded(listed, key)
        try:
            degrees, ranks = self.state.grid.degrees, self.engine.ranks
            strategy = strategy_of(check, tp, degrees, (dtype,), ranks)
            return drawing.sample(strategy, UNIT, key)
        except HypothesisException as error:
            raise InvalidArgument(f"{check.title}: {str(error).splitlines()[0]}") from None

    def _judge(self, check: Check, case: Case) -> CaseResult:
        engine = self.real if check.processes else self.engine
        runner = self._runners.setdefault(check.title, Runner(check, engine))
        return decided(lambda: runner.run(case))

    def _keep(self, check: Check, result: CaseResult) -> str:
        identity = result.case.id(check.title)
        self.corpus.save(
            Saved(
                id=identity,
                check=check.title,
                address=check.address(),
                case=result.case,
                engine=result.engine,
                mismatches=result.mismatches,
                diagnosis={"code": Code.UNCLASSIFIED, "message": "an alarm of a campaign"},
            )
        )
        return identity
