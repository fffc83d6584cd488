"""Hunts of `fuzz`: near cases that showed something new, and from one saved case on."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import Phase, target
from hypothesis.errors import HypothesisException

from tpcheck.case import Case
from tpcheck.errors import CaseError, InvalidArgument
from tpcheck.fuzz.breeding import variants
from tpcheck.fuzz.features import behaviour, score
from tpcheck.fuzz.shelf import Parent
from tpcheck.search import drawing
from tpcheck.search.hunt import Hunt
from tpcheck.verdict import CaseResult

#: Cases that Hypothesis may draw for each that is run: what ran before, or differs from what did by
#: its seed alone, is drawn and not run. With fewer, a turn ends where a climb crosses known ground;
#: more only costs drawing.
DRAWN = 20

#: Of the cases of a turn that climbs, those that are bred: from the best of them on it climbs.
BRED = 0.5

#: How often others are bred in the place of those that ran before, of another turn. All at once are
#: not: Hypothesis takes small ones first, and large ones would be left over.
ROUNDS = 3

#: Cases that are drawn anew in a turn, for children to have some choices of.
OTHERS = 30

#: What is climbed to: an error over its bound.
NEARER = "error over bound"

#: Hypothesis's `max_examples` where one case is drawn again to be shrunk, which it does not count.
ONE = 10


class _Failing(Exception):
    """A case failed: what Hypothesis shrinks on."""


@dataclass(frozen=True)
class Around:
    """Where to look.

    Args:
        degree: of the cases.
        parents: those that showed something rare.
        seen: what has been seen until now, in the words of `features` → in how many cases.
        scores: hash of a case → its score, of those that ran in earlier turns.
        made: word → how many children its cases were given, which grows.
        climbs: whether to go on from the best ones.
    """

    degree: int
    parents: tuple[Parent, ...]
    seen: Mapping[str, int]
    scores: Mapping[int, float]
    made: Counter[str] = field(default_factory=Counter)
    climbs: bool = True


class Near(Hunt):
    """Draws near some cases by Hypothesis's own means: their variants and, where it climbs, from
    the best of these on by its targets: to errors nearer to their bounds, and to what was not seen
    yet."""

    def __init__(self, around: Around, *of_hunt: Any) -> None:
        super().__init__(*of_hunt)
        self.around = around
        self._drawn: dict[Case, bytes] = {}
        self._others: list[bytes] = []  # any cases
        # cases apart from their seeds → their scores: a climb through a million seeds gets nowhere
        self._scores: dict[int, float] = {}

    def run(self, deadline: float | None) -> CaseResult | None:
        """As `Hunt.run`, at one degree."""
        self._until = deadline
        count, key = self.options.examples, f"{self.options.seed} near"
        if self.around.parents:
            strategy = self.strategy(self.around.degree)
            with contextlib.suppress(HypothesisException):
                drawing.each(strategy, OTHERS, key, self._note_other)
        with contextlib.suppress(_Failing, HypothesisException):
            if self.around.climbs:
                self._breed(round(BRED * count), key, [Phase.reuse, Phase.target])
                return self._dullest()
            for number in range(ROUNDS):
                if (wanted := count - len(self.trials.results)) > 0:
                    self._breed(wanted, f"{key} {number}", [Phase.reuse])
        return self._dullest()

    def _breed(self, wanted: int, key: str, phases: list[Phase]) -> None:
        """So many children, which may be cases that ran before."""
        of = self.around
        begin = variants(of.parents, self._others, of.seen, of.made, wanted, key)
        drawing.each(
            self.strategy(of.degree),
            DRAWN * self.options.examples,
            key,
            self._examine,
            phases=phases,
            database=drawing.Given(begin),
        )

    def _note_other(self, _: Case) -> None:
        self._others.append(drawing.choices())

    def choices(self, case: Case) -> bytes | None:
        return self._drawn.get(case)

    def _examine(self, case: Case) -> None:
        alike = hash(replace(case, seed=0))
        known = self.around.scores.get(hash(case))
        if known is None and self.around.climbs:
            known = self._scores.get(alike)
        if known is not None:
            target(known, label=NEARER)
            return
        self._drawn.setdefault(case, drawing.choices())
        if len(self.trials.results) >= self.options.examples and self.trials.result(case) is None:
            return
        if (result := self._result(case)) is None:
            return
        if self._fails_alike(case):
            raise _Failing
        self._scores[alike] = score(result)
        target(score(result), label=NEARER)
        target(len({*behaviour(result)} - self.around.seen.keys()), label="not seen yet")


class Again(Hunt):
    """Runs one saved case and, where it fails, makes it smaller by the choices that drew it.

    Args:
        drawn: those choices, where they are known.
    """

    def __init__(self, case: Case, drawn: bytes | None, *of_hunt: Any) -> None:
        super().__init__(*of_hunt)
        self.case, self.drawn = case, drawn
        self.stale: str | None = None  # why it is none of the check's any more

    def run(self, deadline: float | None) -> CaseResult | None:
        """As `Hunt.run`, of this case."""
        try:
            if not self._fails_alike(self.case):
                return None
        except CaseError as error:
            self.stale = str(error)
            return None
        if self.options.shrink_cases and self.drawn is not None:
            self._shrink_from(self.drawn)
            self._look_lower([self._stream(d) for d in self._shares() if d < self.case.tp])
        return self._dullest()

    def choices(self, case: Case) -> bytes | None:
        return self.drawn if case == self.case else super().choices(case)

    def _shrink_from(self, drawn: bytes) -> None:
        with contextlib.suppress(_Failing, HypothesisException, InvalidArgument):
            strategy = self.strategy(self.case.tp)
            drawing.shrink_from(strategy, drawn, ONE, str(self.options.seed), self._fail)

    def _fail(self, case: Case) -> None:
        if self._fails_alike(case):
            raise _Failing
