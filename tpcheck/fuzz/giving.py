"""Which turn is next. Saved cases come first, since what failed before may have been fixed. Then
every check has its first turn. From then on the next is by turns that of which most is expected,
and that which was looked through least: what is slow, or shows little, may be what is wrong.
Findings are made smaller in between.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tpcheck.case import Case
from tpcheck.figures.hunted import Finding
from tpcheck.fuzz.picking import FOUND, expected, pick
from tpcheck.fuzz.standing import Standing
from tpcheck.fuzz.turn import How, Turn

#: Cases of a check's first turn: as many as show what most wrong code gets wrong. With fewer, that
#: is found in its second turn, after all others had their first.
FIRST = 10

#: Seconds that a later turn is to take. With fewer, they are mostly spent on starting ranks; with
#: more, a check that shows nothing new holds a worker for longer than it is worth.
TURN = 3.0

#: Cases of a turn. With fewer, the pairwise choice of cases has nothing to choose from; with more,
#: a check whose cases were quick at first has a turn of minutes.
FEWEST, MOST = 5, 50

#: The share of the time that findings may take to be made smaller. With more, a folder of much
#: wrong code is not looked through; with less, most findings stay large until the end.
SHRINKING = 0.25


#: The share of a check's cases below which a way that they took is rare. Where none is, drawing
#: anew gets to all of them.
RARE = 0.1


class Giving:
    """Gives the turns of one run.

    Args:
        until: when the time is up; None for never.
        turns: how many may be given that look for something new; None for any number.
    """

    def __init__(
        self, checks: Sequence[Standing], seed: int, *, until: float | None, turns: int | None
    ) -> None:
        self.checks, self.seed, self.until, self.turns = checks, seed, until, turns
        self._random = random.Random(seed)
        self._given = 0
        self._taken: Counter[int] = Counter()  # turns of each check that are being taken
        self._spent = dict.fromkeys(How, 0.0)  # seconds
        self._shrinking: Turn | None = None  # one at a time

    def next(self) -> Turn | None:
        """The turn to give; None where there is none now."""
        if self.until is not None and time.monotonic() >= self.until:
            return None
        return self._again() or self._shrink() or self._look()

    def ended(self, turn: Turn, seconds: float) -> None:
        """A turn has ended, or is lost."""
        self._spent[turn.how] += seconds
        self._taken[turn.check] -= 1
        if turn is self._shrinking:
            self._shrinking = None

    def _again(self) -> Turn | None:
        for number, standing in enumerate(self.checks):
            if standing.again:
                saved = standing.again.popleft()
                turn = self._turn(number, How.AGAIN, 1, saved.case, saved.id)
                return replace(turn, told=turn.told - saved.told)
        return None

    def _shrink(self) -> Turn | None:
        """Makes a finding smaller: once every check had a turn, and as long as that has not had its
        share; and whatever is left, where nothing else is to be done."""
        over = self.turns is not None and self._given >= self.turns
        share = SHRINKING * sum(self._spent.values())
        early = any(map(lambda s: s.waits, self.checks)) or self._spent[How.SHRINK] > share
        if self._shrinking is not None or (early and not over):
            return None
        waiting = ((n, f) for n, s in enumerate(self.checks) for f in s.known.findings)
        for number, finding in waiting:
            if not finding.shrunk:
                self._shrinking = self._turn_of(number, finding)
                return self._shrinking
        return None

    def _turn_of(self, number: int, finding: Finding) -> Turn:
        case = Case.from_dict(finding.case)
        turn = self._turn(number, How.SHRINK, 1, case, finding.id)
        return replace(turn, told=turn.told - set(finding.signatures))

    def _look(self) -> Turn | None:
        """A turn that looks for something new."""
        if self.turns is not None and self._given >= self.turns:
            return None
        able = {number: s for number, s in enumerate(self.checks) if s.open}
        first = [number for number, standing in able.items() if standing.waits]
        if not able:
            return None
        number = first[0] if first else self._of(able)
        how = _how(self.checks[number])
        standing = self.checks[number]
        before = standing.known.cases if standing.given else None
        turn = replace(self._turn(number, how, _cases(standing)), sparing=before)
        standing.given += 1
        self._given += 1
        if how is How.NEAR:
            parents = self.checks[number].parents
            degree = self._random.choice(sorted(parents))
            turn = replace(turn, degree=degree, parents=tuple(parents[degree]))
        return turn

    def _of(self, able: dict[int, Standing]) -> int:
        """A check that has had turns."""
        if self._given % 2:
            unknown = {n: s for n, s in able.items() if not s.known.findings} or able
            return min(unknown, key=lambda n: (self._taken[n], _looked_through(unknown[n]), n))
        return pick(_weights(able), self._random)

    def _turn(
        self, number: int, how: How, cases: int, saved: Case | None = None, identity: str = ""
    ) -> Turn:
        standing = self.checks[number]
        known = standing.known
        self._taken[number] += 1
        key = f"{self.seed} {standing.subject.name} {known.turns} {standing.given} {how.name}"
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "little")
        return Turn(number, how, cases, seed, known.told(), known.seen, saved=saved, id=identity)


def _how(standing: Standing) -> How:
    """Which of the ways to look at a check has had less time: what is new is mostly found far from
    what is known, and what is wrong where few cases get to."""
    if How.NEAR not in standing.arms or not standing.known.turns:
        return How.LOOK
    seen, rare = standing.known.seen, RARE * standing.known.cases
    if not any(one.often(seen) < rare for of in standing.parents.values() for one in of):
        return How.LOOK
    return min(How.LOOK, How.NEAR, key=lambda how: standing.arms[how].spent)


def _looked_through(standing: Standing) -> float:
    """The less a check was, the more its next second promises. Of our mutants those that took more
    than n cases are n times fewer than all: that the next case is the first to show a fault falls
    with the square of n, and what the next second does is that by the seconds of a case."""
    return standing.known.cases * standing.known.seconds


def _weights(able: dict[int, Standing]) -> dict[int, float]:
    """What is expected of each check."""
    return {
        number: expected(standing.arms.values()) * (FOUND if standing.known.findings else 1.0)
        for number, standing in able.items()
    }


def _cases(standing: Standing) -> int:
    """How many are worth a turn: of each degree at least one."""
    known, fewest = standing.known, max(FEWEST, len(standing.degrees))
    if not known.cases:
        return max(FIRST, fewest)
    return max(min(round(TURN * known.cases / max(known.seconds, 1e-3)), MOST), fewest)
