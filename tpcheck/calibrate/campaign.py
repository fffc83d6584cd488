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
from dataclasses import dataclass

from hypothesis.errors import HypothesisException

from tpcheck.calibrate.state import State
from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument, let_through
from tpcheck.figures.alarms import Summary, Unit, summary
from tpcheck.known import covering
from tpcheck.report import reasons
from tpcheck.runner.runner import Runner
from tpcheck.search import drawing
from tpcheck.search.corpus import Corpus, Saved
from tpcheck.search.drawn import strategy_of
from tpcheck.search.failures import decided
from tpcheck.search.session import Session
from tpcheck.search.trouble import why
from tpcheck.verdict import CaseResult, Verdict
from tpcheck.vocabulary import Code
from tpcheck.workers.jobs import InOrder, side_by_side
from tpcheck.workers.worker import Start

#: Cases of one (check, degree, dtype) in a row. With more, a short campaign is not a fair sample;
#: with fewer, each sample begins with the dullest case more often.
UNIT = 10

Kind = tuple[str, int, str, int]  # check, degree, dtype, round


@dataclass(frozen=True)
class Trouble:
    """Why a check can't run; `gone`: no case can any more."""

    reason: str
    gone: bool = False


class Campaign:
    """Runs what is left of a campaign.

    Args:
        checks: of correct candidates; any FAIL is a false alarm (or a fault to be looked into).
        state: what is done, and what is to be drawn from.
        corpus: where cases that alarm are kept, for `tpcheck replay`.
    """

    def __init__(self, checks: Sequence[Check], state: State, corpus: Corpus) -> None:
        self.checks = {check.title: check for check in checks}
        if len(self.checks) < len(checks):
            titles = Counter(check.title for check in checks)
            twice = next(title for title, count in titles.items() if count > 1)
            raise InvalidArgument(
                f"two checks are called {twice!r}, and the state file tells them apart by name "
                "only; give one of them, or Check(name=…)"
            )
        self.state, self.corpus = state, corpus
        self.troubled: dict[str, str] = {}  # check → why it can't run
        self._runners: dict[str, Runner] = {}

    def run(
        self,
        session: Session,
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
        run = _Run(self, cases, until, finished)
        while (kind := run.next()) is not None:
            run.ended(kind, self.do(session, kind))
        return self.summary()

    def run_side_by_side(
        self,
        start: Start,
        jobs: int,
        cases: int,
        *,
        until: float | None = None,
        finished: Callable[[Unit], None] | None = None,
    ) -> Summary:
        """The same in so many processes: the same units, in the same order."""
        run = _Run(self, cases, until, finished)
        side_by_side(run, start, self.do, count=jobs, what="checks")
        return self.summary()

    def summary(self) -> Summary:
        """What has come out so far."""
        return summary(self.units())

    def do(self, session: Session, kind: Kind, told: object = None) -> Unit | Trouble:
        """What a unit comes to."""
        try:
            return self._run(session, *kind)
        except BaseException as error:  # of one check: the others go on
            let_through(error)
            return Trouble(why(error), Session(session.engine).why_gone() is not None)

    def units(self) -> list[Unit]:
        """Those of its checks that are done."""
        return [unit for unit in self.state.units.values() if unit.check in self.checks]

    def remaining(self) -> Iterator[Kind | None]:
        """Round after round, each in an order of its own, so that a few cases are spread as many
        are; what had no case in the first round has none later. None at the end of each round: what
        it came to decides what is in the next."""
        grid = self.state.grid
        kinds = list(itertools.product(self.checks, grid.degrees, grid.dtypes))
        for number in itertools.count():
            rng = random.Random(f"{grid.seed} {number}")
            for kind in rng.sample(kinds, len(kinds)):
                if (*kind, number) not in self.state.units and kind[0] not in self.troubled:
                    yield (*kind, number)
            yield None
            kinds = [kind for kind in kinds if kind[0] not in self.troubled]
            if number == 0:
                kinds = [kind for kind in kinds if self.state.units[*kind, 0].decidable]
            if not kinds:
                raise InvalidArgument("no check has a case at these degrees and dtypes")

    def most(self, kind: Kind) -> int:
        """How many cases a unit has, at most."""
        cases = self.checks[kind[0]].spec.cases
        return UNIT if callable(cases) else len(cases)

    def _run(self, session: Session, name: str, tp: int, dtype: str, number: int) -> Unit:
        check, begun = self.checks[name], time.monotonic()
        usage: list[float] = []
        alarms: list[str] = []
        undecided = known = 0
        for case in self._draw(check, tp, dtype, number, session.engine.ranks):
            if covering(check.known, case):
                known += 1
                continue
            result = self._judge(session, check, case)
            if result.verdict is Verdict.FAIL:
                alarms.append(self._keep(check, result))
            elif result.verdict is Verdict.PASS:
                usage.append(round(result.usage, 5))
            else:
                undecided += 1
        seconds = round(time.monotonic() - begun, 3)
        return Unit(name, tp, dtype, number, usage, alarms, undecided, known, seconds)

    def _draw(self, check: Check, tp: int, dtype: str, number: int, ranks: int) -> list[Case]:
        key = f"{self.state.grid.seed} {check.title} {tp} {dtype} {number}"
        if not callable(check.spec.cases):
            listed = [case for case in check.spec.cases if (case.tp, case.dtype) == (tp, dtype)]
            return drawing.reseeded(listed, key)
        if check.spec.dtypes and dtype not in check.spec.dtypes:
            return []  # it would draw others, which belong to other units
        try:
            strategy = strategy_of(check, tp, self.state.grid.degrees, (dtype,), ranks)
            return drawing.sample(strategy, UNIT, key)
        except HypothesisException as error:
            raise InvalidArgument(f"{check.title}: {str(error).splitlines()[0]}") from None

    def _judge(self, session: Session, check: Check, case: Case) -> CaseResult:
        engine = (session.confirm if check.processes else None) or session.engine
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
                spec=check.spec.name,
            )
        )
        return identity


class _Run:
    """The jobs of one run: units, of which no more are given than one after the other would be.

    Args:
        cases, until, finished: as of `Campaign.run`.
    """

    def __init__(
        self,
        campaign: Campaign,
        cases: int,
        until: float | None,
        finished: Callable[[Unit], None] | None,
    ) -> None:
        self.campaign, self.cases, self.until, self.finished = campaign, cases, until, finished
        self._done = sum(unit.cases for unit in campaign.units())
        self._left = campaign.remaining()
        self._ahead: list[Kind | None] = []  # looked at, and not given yet
        self._order: InOrder[Kind, Unit | Trouble] = InOrder(self._tell)
        self._over = False

    def next(self) -> Kind | None:
        given = self._order.waiting
        late = self.until is not None and time.monotonic() > self.until
        # those that are being run may bring all that is asked for
        enough = self._done + sum(map(self.campaign.most, given)) >= self.cases
        if self._over or late or enough:
            return None
        while True:
            kind = self._ahead.pop() if self._ahead else next(self._left)
            if kind is not None:
                return self._order.given(kind)
            if given:
                self._ahead.append(kind)
                return None

    def ended(self, kind: Kind, came: Unit | Trouble) -> None:
        self._order.ended(kind, came)

    def lost(self, kind: Kind, seconds: float) -> None:
        self.ended(kind, Trouble(reasons.JOB_LOST))

    def _tell(self, kind: Kind, came: Unit | Trouble) -> None:
        troubled = self.campaign.troubled
        if kind[0] in troubled:  # one after the other, it would not have been run
            return
        if isinstance(came, Trouble):
            troubled[kind[0]] = came.reason
            self._over |= came.gone or len(troubled) == len(self.campaign.checks)
            return
        self.campaign.state.add(came)
        self._done += came.cases
        if self.finished:
            self.finished(came)
