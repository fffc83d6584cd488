"""A stream of cases: drawn by Hypothesis, run in the order that shows most.

Cases are drawn ahead of those that are run. The simplest one runs first; then, greedily, the one
that covers the largest share of new pairs of features (dtype and step, fewer K/V heads than ranks
and a second microbatch), as in Cohen, Dalal, Fredman and Patton, "The AETG System", IEEE
Transactions on Software Engineering 23(7), 1997. Few cases then cover what chance alone would
leave out.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import Phase
from hypothesis.errors import HypothesisException, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from tpcheck.case import Case
from tpcheck.search import drawing

#: Cases that Hypothesis draws in one run. It spends a longer run on near copies of a few cases; a
#: shorter one begins anew with the dullest case more often, which is then thrown away.
ROUND = 10

#: Sizes, at most, that are compared with each other. Pairs of such comparisons grow as the fourth
#: power of their number: a case of 40 dims would take minutes.
FEW = 8

#: Rounds without a new case after which there are no more. With too few, a spec whose cases are
#: seldom valid ends early; with too many, one that has only a few cases ends late.
BARREN = 4

Feature = tuple[str, object]


class _Failing(Exception):
    """A case failed: what Hypothesis shrinks on."""


class _Enough(Exception):
    """No more is to be drawn now."""


@dataclass
class _Waits:
    """A case that waits: how much it shows, and what of that no case before it showed."""

    shows: int
    news: set[object]

    @property
    def share(self) -> float:
        """That of the news: of cases with other dims, those with few are not less worth."""
        return len(self.news) / self.shows


class Stream:
    """Cases of one strategy, each once; the same ones for the same `key`.

    The first is the dullest, unless the strategy throws that one away.

    Args:
        strategy: what Hypothesis draws and shrinks.
        key: of the draws.
        listed: all cases there are, where the strategy chooses from a list.
        past: whether a case has run in an earlier stream: it is not taken again.
    """

    #: Cases drawn for each that is run. With 1 they run as they come, and pairs of features that
    #: are rare are left out; more only costs time for drawing.
    ahead = 3

    #: Whether the first case is drawn alone where one is asked for. Most wrong code fails in it,
    #: and others would have been drawn in vain.
    first_alone = True

    def __init__(
        self,
        strategy: SearchStrategy[Case],
        key: str,
        listed: Sequence[Case] = (),
        past: Callable[[Case], bool] = lambda _: False,
    ) -> None:
        self.strategy, self.key, self.past = strategy, key, past
        self.choices: dict[Case, bytes] = {}  # by which Hypothesis draws it again
        self._round_of = dict.fromkeys(listed, 0)
        self._shown: set[object] = set()
        self._waiting: dict[Case, _Waits] = {}
        self._put_back: list[Case] = []
        self._wait(listed)
        self._rounds = self._owed = 0
        self._barren = BARREN if listed else 0  # rounds without a new case, the last ones

    @property
    def empty(self) -> bool:
        """Whether there is no case, as far as drawing can tell."""
        return self._barren == BARREN and not self._round_of

    @property
    def drawn(self) -> list[Case]:
        """Those that came so far, whether they were taken or not."""
        return list(self._round_of)

    def take(self, count: int) -> list[Case]:
        """The next `count` cases; fewer where there are no more, and none at the end.

        Raises:
            HypothesisException: the strategy can't be drawn from.
        """
        again, self._put_back = self._put_back[:count], self._put_back[count:]
        if count == 1 and self.first_alone and not self._rounds and not self.drawn:
            self._draw_first()
            if self._waiting:
                return self._best(1)
        self._draw(self.ahead * (count - len(again)) + self._owed)
        self._owed = 0
        return again + self._best(count - len(again))

    def put_back(self, cases: Sequence[Case]) -> None:
        """Those that were taken, and have not run, are the next."""
        self._put_back = [*cases, *self._put_back]

    def _best(self, count: int) -> list[Case]:
        """Of the cases that wait, those that show most that none before them showed."""
        taken: list[Case] = []
        while self._waiting and len(taken) < count:
            best, _ = max(self._waiting.items(), key=lambda item: item[1].share)
            news = self._waiting.pop(best).news
            self._shown |= news
            for waits in self._waiting.values():
                waits.news -= news
            taken.append(best)
        return taken

    def _wait(self, cases: Iterable[Case]) -> None:
        for case in cases:
            if not self.past(case):
                shows = self._shows(case)
                self._waiting[case] = _Waits(len(shows), shows - self._shown)

    def _shows(self, case: Case) -> set[object]:
        return shows(case)

    def _draw(self, wanted: int) -> None:
        """Draws until as many wait as are wanted, or nothing new comes any more."""
        while len(self._waiting) < wanted and self._barren < BARREN:
            drawn = self._round(self._rounds)
            fresh = [case for case in drawn if case not in self._round_of]
            self._round_of |= dict.fromkeys(fresh, self._rounds)
            self._wait(fresh)
            self.choices = drawn | self.choices
            self._barren = 0 if fresh else self._barren + 1
            self._rounds += 1

    def _draw_first(self) -> None:
        """The first case of the first round, which is the first to be taken of any number."""
        drawn: dict[Case, bytes] = {}

        def examine(case: Case) -> None:
            note(drawn, case)
            raise _Enough

        with contextlib.suppress(_Enough, Unsatisfiable):
            self._each(0, examine, phases=[Phase.generate])
        self._round_of |= dict.fromkeys(drawn, 0)
        self._wait(drawn)
        self.choices |= drawn
        self._owed = (self.ahead - 1) * len(drawn)  # of what would have been drawn with it

    def _round(self, number: int) -> dict[Case, bytes]:
        """Cases that are drawn together, and the choices of each."""
        drawn: dict[Case, bytes] = {}
        with contextlib.suppress(Unsatisfiable):
            self._each(number, partial(note, drawn))
        return drawn

    def shrink(self, case: Case, fails: Callable[[Case], bool]) -> None:
        """Makes a case that was taken, and fails, smaller: `fails` is asked of ever duller ones.

        Hypothesis shrinks only what it has just drawn: the choices by which it drew the case are
        made once more. Where they no longer give a case that fails, the round that it is from is
        drawn again, and the first case in it that fails is shrunk.
        """

        def examine(drawn: Case) -> None:
            if fails(drawn):
                raise _Failing

        with contextlib.suppress(_Failing, HypothesisException):
            if case in self.choices:
                drawn = self.choices[case]
                drawing.shrink_from(self.strategy, drawn, ROUND, self.key, examine)
            self._each(self._round_of[case], examine)

    def _each(self, number: int, examine: Callable[[Case], None], **how: Any) -> None:
        drawing.each(self.strategy, ROUND, f"{self.key} {number}", examine, **how)


def note(drawn: dict[Case, bytes], case: Case) -> None:
    """Keeps the choices of the case that is drawn now."""
    drawn.setdefault(case, drawing.choices())


def shows(case: Case) -> set[object]:
    """Every two features of a case."""
    return set(itertools.combinations(features(case), 2))


def features(case: Case) -> Iterator[Feature]:
    """What kind of case it is, whatever the sizes: of a size only how it compares with the degree,
    and, unless there are many, with the others (square weights, as many K/V heads as query heads).
    Modes are left out, which are as frequent as they are drawn: as news they would crowd out
    training, of which there is most to see."""
    yield "dtype", case.dtype
    yield "microbatches", min(case.microbatches, 2)  # those of more are dear, and as rare as drawn
    yield "step", case.step
    yield "memory", case.memory
    yield "magnitude", (case.magnitude > 0) - (case.magnitude < 0)
    yield "integers", case.integers
    if case.family != "normal":  # models' are
        yield "family", case.family
    if case.gradients != "all":
        yield "gradients", case.gradients
    if case.saved_at:
        yield "saved_at", case.saved_at > case.tp
    yield from ((f"mesh.{axis}", size) for axis, size in {"dp": 1, **case.mesh}.items())
    sizes = {n: v for n, v in sorted(case.dims.items()) if not isinstance(v, (bool, str))}
    yield from ((name, value) for name, value in case.dims.items() if name not in sizes)
    for name, size in sizes.items():
        yield name, (size == 1, (size > case.tp) - (size < case.tp), size % case.tp == 0)
    if len(sizes) <= FEW:
        for (one, size), (other, another) in itertools.combinations(sizes.items(), 2):
            yield f"{one} = {other}", size == another
