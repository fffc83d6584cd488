"""The hunt: cases are drawn until one fails; that is shrunk, and looked for at lower degrees."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

from hypothesis.errors import HypothesisException
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.check import Check
from tpcheck.errors import InvalidArgument
from tpcheck.evidence import Stuck
from tpcheck.search.drawn import strategy_of
from tpcheck.search.failures import family, size
from tpcheck.search.options import SHRINK_CASES, Options
from tpcheck.search.schedule import share
from tpcheck.search.stream import Stream
from tpcheck.search.trials import Trials
from tpcheck.verdict import CaseResult
from tpcheck.vocabulary import Impasse

#: Cases of one degree before the next has its turn. With more, a fault that shows only at the
#: highest degree is met later; with fewer, a stream, which draws thrice what it is asked for and
#: runs the most telling third, has little to choose from.
SLICE = 10

#: Cases in a row that make a failure no smaller after which it is small enough. With fewer, some
#: cases stay larger than they need be; with more, most failures cost twice as many, in vain.
IN_VAIN = 12
#: The same of kernels, whose sizes are drawn from more numbers.
IN_VAIN_OF_KERNELS = 24

#: What a case takes of the cases that shrinking may cost, where it is slow: a hang is waited for as
#: long as the time limit, twice, and a deadlock for seconds. Anything else takes one.
_COSTS = {Impasse.TOO_LONG: SHRINK_CASES, Impasse.EVERY_RANK_WAITS: 10}
#: The same of one that the candidate compiles for, and of one that is judged a second time, under
#: bounds of many more runs. With less, a search that has failed already goes on for a minute.
_COMPILED, _LOOKED_AGAIN = 3, 2


class Hunt:
    """Looks for a failing case of one check among those drawn.

    Args:
        ranks: how many the engine has.
        keep: is told of each failing case that may yet shrink.
        past: whether a case is not to be drawn again, since it ran before this hunt.
    """

    def __init__(
        self,
        check: Check,
        ranks: int,
        options: Options,
        trials: Trials,
        keep: Callable[[CaseResult], None],
        past: Callable[[Case], bool] = lambda _: False,
    ) -> None:
        self.check, self.ranks, self.options = check, ranks, options
        self.trials, self.keep, self.past = trials, keep, past
        self.failing: list[CaseResult] = []  # all of one family, the first one first
        self.impossible: set[int] = set()  # degrees at which the spec has no case
        self.cut = False  # whether the time was up before all were drawn
        self._streams: dict[int, Stream] = {}  # degree → its cases
        self._ended: set[int] = set()  # degrees that have no more
        self._until: float | None = None  # no case is drawn after it, but for the first one
        self._begun = False  # whether a case has run
        self._left: int | None = None  # cases that shrinking may still cost; None before a failure
        self._patience = IN_VAIN if check.kernel is None else IN_VAIN_OF_KERNELS
        self._in_vain = 0  # what was spent of them since the failure became smaller

    def run(self, deadline: float | None) -> CaseResult | None:
        """The dullest failing case, or None. Each degree gets its share of the examples, and what
        others have no cases for; they take turns, the smallest first, and each turn may take its
        share of the time that is left.

        Raises:
            InvalidArgument: the spec has no case at any of the degrees.
        """
        left = self._shares()
        while turn := [degree for degree in left if left[degree]]:
            for index, degree in enumerate(turn):
                self._until = share(deadline, len(turn) - index)
                count = min(SLICE, left[degree])
                ran = self._search(self._stream(degree), count)
                left[degree] -= ran
                if ran < count and not self._late():
                    self._hand_on(left, degree)
                if self.failing:
                    self._look_lower([s for d, s in self._streams.items() if d < degree])
                    return self._dullest()
            if deadline is not None and time.monotonic() > deadline:
                self.cut = any(left.values())
                break
        self._note_impossible()
        return None

    def _hand_on(self, left: dict[int, int], degree: int) -> None:
        """A degree has no more cases: what is left of its share goes to those that may have."""
        self._ended.add(degree)
        spare, left[degree] = left[degree], 0
        if others := [other for other in left if other not in self._ended]:
            each, more = divmod(spare, len(others))
            for index, other in enumerate(reversed(others)):  # the first ones began with more
                left[other] += each + (index < more)

    def choices(self, case: Case) -> bytes | None:
        """Those that draw it again, as Hypothesis writes them; None where it was not drawn."""
        drawn = (stream.choices.get(case) for stream in self._streams.values())
        return next(filter(None, drawn), None)

    def all_drawn(self) -> list[Case]:
        """All that were drawn, whether they ran or not."""
        return [case for stream in self._streams.values() for case in stream.drawn]

    def degrees(self) -> list[int]:
        """Those at which cases are drawn."""
        return list(self._shares())

    def _shares(self) -> dict[int, int]:
        """Degree → how many cases."""
        degrees = sorted(set(self.check.spec.degrees or self.options.degrees))
        if not callable(self.check.spec.cases):
            degrees = degrees[:1]  # a list of cases says its degrees itself
        each, more = divmod(self.options.examples, len(degrees))
        return {degree: each + (index < more) for index, degree in enumerate(degrees)}

    def _stream(self, degree: int) -> Stream:
        if degree not in self._streams:
            listed = () if callable(self.check.spec.cases) else self.check.spec.cases
            key = f"{self.options.seed} {degree}"
            self._streams[degree] = self._new_stream(self.strategy(degree), key, listed)
        return self._streams[degree]

    def strategy(self, degree: int) -> SearchStrategy[Case]:
        """That of the cases of one degree."""
        options = self.options
        return strategy_of(self.check, degree, options.degrees, options.dtypes, self.ranks)

    def _new_stream(
        self, strategy: SearchStrategy[Case], key: str, listed: Sequence[Case]
    ) -> Stream:
        return Stream(strategy, key, listed, self.past)

    def _note_impossible(self) -> None:
        self.impossible = {degree for degree, stream in self._streams.items() if stream.empty}
        if len(self.impossible) == len(self._streams):
            raise InvalidArgument(_no_case(self.check, self._shares(), self.options.dtypes))

    def _search(self, stream: Stream, count: int) -> int:
        """Runs the next `count` cases of a stream up to one that fails, and shrinks that. Returns
        how many ran: fewer where there are no more, or none may run."""
        if self._over():
            return 0
        alone = count > 1 and not self._begun and stream.first_alone
        cases, ran = _taken(stream, 1 if alone else count), 0
        while ran < len(cases):
            case, then = cases[ran], next(iter(cases[ran + 1 : ran + 2]), None)
            if self._result(case, then) is None:
                stream.put_back(cases[ran:])
                break
            ran += 1
            if self._fails_alike(case):
                if self.options.shrink_cases:
                    self._shrink(stream, case)
                break
            if alone:
                cases, alone = cases + _taken(stream, count - 1), False
        return ran

    def _shrink(self, stream: Stream, case: Case) -> None:
        with contextlib.suppress(InvalidArgument):  # of a duller case: the failure stands
            stream.shrink(case, self._fails_alike)

    def _fails_alike(self, case: Case) -> bool:
        """Whether the case fails in the way of the first one that did."""
        result = self._result(case)
        if result is None or not self.trials.fails(result):
            return False
        if self.failing and family(result) != family(self.failing[0]):
            return False
        if not any(result is known for known in self.failing):
            self._note(result)
        return True

    def _dullest(self) -> CaseResult | None:
        """The dullest case that fails under closer bounds, too; the first one does."""
        for result in sorted(self.failing, key=size):
            if not result.suspected:
                return result
            again = self.trials.run(result.case)
            if self.trials.fails(again) and family(again) == family(self.failing[0]):
                return again
        return None

    def _result(self, case: Case, then: Case | None = None) -> CaseResult | None:
        """The case's result; None once the search is over (known results stay). Once one has failed
        smaller ones are not judged closely: that is done with the smallest, at last."""
        known = self.trials.result(case)
        if known is not None:
            return known
        if self._over():
            return None
        result = self.trials.run(case, then, closely=not self.failing or bool(self.check.known))
        self._begun = True
        if self._left is not None:
            self._left -= _cost(result)
            self._in_vain += _cost(result)
        return result

    def _over(self) -> bool:
        """Whether no more cases may run: a clock ends drawing, where the user gave a time budget,
        and only a number of cases ends shrinking, so that a failure is made as small on a busy
        machine as on an idle one."""
        if self._left is not None:
            return self._left <= 0 or (bool(self.failing) and self._in_vain >= self._patience)
        return self._late()

    def _late(self) -> bool:
        """Whether the share of the time is up. One in which no case has run decides nothing, and
        may be passed as long as there is time at all: a budget that is too small for all checks is
        then spent on the first ones, and not on none."""
        if self._until is None:
            return False
        until = self._until if self._begun else max(self._until, self.options.end or 0.0)
        return time.monotonic() > until

    def _note(self, result: CaseResult) -> None:
        """A new failing case. From the first one on, cases are for shrinking."""
        if not self.failing:
            self._left = self.options.shrink_cases
            self.keep(result)
            self.trials.end_with(result)
        self.failing.append(result)
        self._in_vain = 0

    def _look_lower(self, streams: Iterable[Stream]) -> None:
        """What failed at a high degree may fail at a lower one too, only more rarely there."""
        first, self.failing = self.failing, []
        for stream in streams:
            self._left = min(self.options.lower_cases, self.options.shrink_cases)
            while not self.failing and self._search(stream, SLICE) == SLICE:
                pass
            if self.failing and family(self.failing[0]) == family(first[0]):
                break
        self.failing = first + [r for r in self.failing if family(r) == family(first[0])]


def _no_case(check: Check, degrees: Iterable[int], dtypes: Sequence[str]) -> str:
    own, narrowed = _list(check.spec.asked(dtypes)), bool(check.spec.dims)
    others = "degrees, dtypes or dims=" if narrowed else "degrees or dtypes"
    return f"no case exists at tp={_list(degrees)}, dtype={own}; give other {others}"


def _taken(stream: Stream, count: int) -> list[Case]:
    """The next cases of a stream.

    Raises:
        InvalidArgument: the strategy can't be drawn from.
    """
    try:
        return stream.take(count)
    except HypothesisException as error:
        raise InvalidArgument(str(error).splitlines()[0]) from None


def _cost(result: CaseResult) -> int:
    """How many cases' worth of time it took, by what kind of case it is: never by a clock."""
    stuck = [m.detail.why for m in result.mismatches if isinstance(m.detail, Stuck)]
    slow = [_COMPILED] * result.compiles + [_LOOKED_AGAIN] * result.looked_again
    return max([1, *slow, *(_COSTS.get(why, 1) for why in stuck)])


def _list(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
