"""A stream of cases: drawn by Hypothesis, run in the order that shows most.

Three times as many cases are drawn as are run. Of those that wait, the next is the one that has
most pairs of features (dtype and step, fewer K/V heads than ranks and a second microbatch) that no
case before it had, as in Cohen, Dalal, Fredman and Patton, "The AETG System", IEEE Transactions on
Software Engineering 23(7), 1997. Few cases then cover what chance alone would leave out.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

from hypothesis.errors import HypothesisException, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from tpcheck import strategies
from tpcheck.case import Case

ROUND = 10  # Hypothesis spends a longer run on near copies of a few cases
AHEAD = 3  # cases drawn for one that is run

Feature = tuple[str, object]
Pair = tuple[Feature, Feature]


class _Failing(Exception):
    """A case failed: what Hypothesis shrinks on."""


class Stream:
    """Cases of one strategy, each once; the same ones for the same `key`.

    The first is the dullest, unless the strategy throws that one away.
    """

    def __init__(self, strategy: SearchStrategy[Case], key: str) -> None:
        self.strategy, self.key = strategy, key
        self._round_of: dict[Case, int] = {}
        self._waiting: dict[Case, set[Pair]] = {}
        self._shown: set[Pair] = set()

    @property
    def empty(self) -> bool:
        """Whether no case has been found: before the first `take`, or since there is none."""
        return not self._round_of

    def take(self, count: int) -> list[Case]:
        """The next `count` cases; fewer where there are no more, and none at the end.

        Raises:
            HypothesisException: the strategy can't be drawn from.
        """
        self._draw(AHEAD * count)
        taken: list[Case] = []
        while self._waiting and len(taken) < count:
            best = max(self._waiting, key=lambda case: len(self._waiting[case] - self._shown))
            self._shown |= self._waiting.pop(best)
            taken.append(best)
        return taken

    def _draw(self, wanted: int) -> None:
        """Draws until as many wait as are wanted, or a round brings nothing new."""
        drawn: list[Case] = []
        for number in itertools.count(1 + max(self._round_of.values(), default=-1)):
            drawn.clear()
            with contextlib.suppress(Unsatisfiable):
                self._each(number, drawn.append)
            fresh = [case for case in dict.fromkeys(drawn) if case not in self._round_of]
            self._round_of |= dict.fromkeys(fresh, number)
            self._waiting |= {case: pairs(case) for case in fresh}
            if not fresh or len(self._waiting) >= wanted:
                return

    def shrink(self, case: Case, fails: Callable[[Case], bool]) -> None:
        """Makes a case that was taken, and fails, smaller: `fails` is asked of ever duller ones.

        Hypothesis shrinks only what it has just drawn: the round that the case is from is drawn
        once more, up to it.
        """
        reached = False

        def examine(drawn: Case) -> None:
            nonlocal reached
            reached = reached or drawn == case
            if reached and fails(drawn):
                raise _Failing

        with contextlib.suppress(_Failing, HypothesisException):
            self._each(self._round_of[case], examine)

    def _each(self, number: int, examine: Callable[[Case], None]) -> None:
        strategies.each(self.strategy, ROUND, f"{self.key} {number}", examine)


def pairs(case: Case) -> set[Pair]:
    """Every two features of a case."""
    return set(itertools.combinations(features(case), 2))


def features(case: Case) -> Iterator[Feature]:
    """What kind of case it is, whatever the sizes: how each lies to the degree, and which are equal
    (square weights, as many K/V heads as query heads)."""
    yield "dtype", case.dtype
    yield "dp", case.dp
    yield "microbatches", case.microbatches
    yield "step", case.step
    yield "memory", case.memory
    yield "magnitude", (case.magnitude > 0) - (case.magnitude < 0)
    yield "integers", case.integers
    sizes = {n: v for n, v in sorted(case.dims.items()) if not isinstance(v, (bool, str))}
    yield from ((name, value) for name, value in case.dims.items() if name not in sizes)
    for name, size in sizes.items():
        yield name, (size == 1, (size > case.tp) - (size < case.tp), size % case.tp == 0)
    for (one, size), (other, another) in itertools.combinations(sizes.items(), 2):
        yield f"{one} = {other}", size == another
