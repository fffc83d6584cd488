"""Which check has the next turn: the one of which most is expected."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

#: Seconds that an arm is taken to have had without a discovery before its first turn. With fewer,
#: one cheap discovery keeps it on top; with many more, all arms are alike for minutes.
PRIOR = 2.0

#: What an arm's past counts for after each further turn. Nearer to 1, what was new in the first
#: minute decides in the second hour; smaller, and one lucky turn does.
KEEPS = 0.9

#: The weight of a check with a finding, which has failed already: it is looked at for another
#: diagnosis, and most of the time is for those of which nothing is known.
FOUND = 0.1


@dataclass
class Arm:
    """One way to look at one check.

    Args:
        news: cases that showed something new, older ones counting less.
        seconds: what they and the others took, likewise.
        spent: the same, all of it.
    """

    news: float = 0.0
    seconds: float = 0.0
    spent: float = 0.0

    def add(self, news: int, seconds: float) -> None:
        """A turn has ended."""
        self.news = KEEPS * self.news + news
        self.seconds = KEEPS * self.seconds + seconds
        self.spent += seconds


def expected(arms: Iterable[Arm]) -> float:
    """Discoveries per second of one check, by Laplace's rule."""
    known = list(arms)
    return (sum(arm.news for arm in known) + 1) / (sum(arm.seconds for arm in known) + PRIOR)


def pick(arms: Mapping[Name, float], random_: random.Random) -> Name:
    """One of the names, each as often as its weight says: none is left out for good, however
    little it promised."""
    names = list(arms)
    return random_.choices(names, [arms[name] for name in names])[0]
