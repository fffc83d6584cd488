"""Cases near others, by the choices that drew them. What all cases that took a way have in common
is likely to be why they took it: that is kept, and the rest drawn anew.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck.fuzz.shelf import Parent

#: How often a choice that all parents of a way share becomes another. Never, and what they share by
#: chance would be taken for what the way needs; often, and the way is lost.
CHANGES = 0.05
#: The same of any choice where there are fewer than so many parents, of which any may be needed.
ENOUGH, CHANGES_OF_FEW = 3, 0.15

#: Of choices that the parents of a way do not share, those that a child has of its own parent, of
#: another one, and of any case. The last leaves the way where a size has to be large, say.
SOURCES = (0.35, 0.25, 0.4)
#: How often a choice is of where the one before is: which of several strategies is drawn from, and
#: what it draws, belong together.
STAYS = 0.5

#: How often a size is put beside a step, or beside another size.
BESIDE_SHARE = 0.4

#: How far a number may be from another, or from a step, that it is to be beside.
BESIDE = (-1, 0, 1)

#: The least step; and the largest number that may be a size: a seed is larger now and then.
STEP, LARGEST = 8, 2**16

#: Of how many steps a size is, at most. With more, cases are larger and take longer.
REPEATS = 4

Choices = list[Any]


@dataclass
class _Way:
    """What some parents have shown and others have not, and the choices of those that have."""

    word: str
    parents: list[Choices]

    def shares(self, place: int) -> bool:
        """Whether all of them have the same there."""
        first = self.parents[0][place]
        return all(type(one[place]) is type(first) and one[place] == first for one in self.parents)

    def tied(self, place: int, other: int) -> bool:
        """Whether both are the same number in each, and not the same in all."""
        return all(_same(one[place], one[other]) for one in self.parents) and not self.shares(place)


def variants(
    parents: Sequence[Parent],
    others: Sequence[bytes],
    counts: Mapping[str, int],
    made: Counter[str],
    wanted: int,
    key: str,
) -> list[bytes]:
    """Choices near those of parents, the same for the same `key`. What few cases have shown has
    children most often, and less so the more it has.

    Args:
        others: choices of any cases, which children have some of.
        counts: word → how many cases showed it.
        made: word → how many children its cases were given, which grows.
    """
    random_ = random.Random(key)
    read = [(one, list(own)) for one in parents if (own := choices_from_bytes(one.choices))]
    ways = _ways(read, counts)
    pool = _read(others) or [own for _, own in read]
    most = _most(pool)
    found: dict[bytes, None] = {}
    for _ in range(4 * wanted if read else 0):
        weights = [1 / (1 + counts.get(way.word, 0) + made[way.word]) ** 2 for way in ways]
        (way,) = random_.choices(ways, weights)
        made[way.word] += 1
        child = _child(way, random_.choice(pool), most, random_)
        found[choices_to_bytes(child)] = None
        if len(found) == wanted:
            break
    return list(found)


def beside_steps(drawn: Sequence[bytes], key: str) -> list[bytes]:
    """The same with sizes beside a multiple of a power of two, where blocks of kernels end."""
    random_ = random.Random(key)
    read = _read(drawn)
    most = _most(read)
    for own in read:
        for _ in range(random_.randint(1, 2)):
            if places := _sizes(own, most):
                place = random_.choice(places)
                own[place] = _beside_a_step(most[place], random_)
    return [choices_to_bytes(own) for own in read]


def _read(drawn: Sequence[bytes]) -> list[Choices]:
    return [list(choices) for one in drawn if (choices := choices_from_bytes(one))]


def _ways(read: Sequence[tuple[Parent, Choices]], counts: Mapping[str, int]) -> list[_Way]:
    """The words that tell parents apart; of several that the same ones show, the rarest."""
    showing: defaultdict[str, list[int]] = defaultdict(list)
    for number, (parent, _) in enumerate(read):
        for word in parent.seen or {""}:
            showing[word].append(number)
    words: dict[tuple[int, ...], str] = {}
    for word in sorted(showing, key=lambda word: (counts.get(word, 0), word)):
        words.setdefault(tuple(showing[word]), word)
    return [_Way(word, [read[n][1] for n in among]) for among, word in words.items()]


def _most(read: Sequence[Choices]) -> dict[int, int]:
    """Place of a choice → the largest number there, where that may be a size with steps."""
    most: dict[int, int] = {}
    for own in read:
        for place, value in enumerate(own):
            if type(value) is int:
                most[place] = max(most.get(place, 0), value)
    return {place: value for place, value in most.items() if 2 * STEP <= value <= LARGEST}


def _child(way: _Way, other: Choices, most: Mapping[int, int], random_: random.Random) -> Choices:
    """One of the way's parents, with others' choices in places."""
    own, mate = list(random_.choice(way.parents)), random_.choice(way.parents)
    common = min(map(len, [*way.parents, other]))
    few = len(way.parents) < ENOUGH
    before, source = list(own), own
    for place in range(common):
        if few or way.shares(place):
            if random_.random() < (CHANGES_OF_FEW if few else CHANGES):
                own[place] = other[place]
            continue
        if random_.random() > STAYS:
            (source,) = random_.choices((own, mate, other), SOURCES)
        own[place] = source[place]
    if (places := _sizes(own[:common], most)) and random_.random() < BESIDE_SHARE:
        place = random_.choice(places)
        like = random_.choice(places)
        own[place] = (
            _beside_a_step(most[place], random_)
            if like == place or random_.random() < 0.5
            else own[like] + random_.choice(BESIDE)
        )
    if not few:
        _tie(way, own, before, common)
    return own


def _tie(way: _Way, own: Choices, before: Choices, common: int) -> None:
    """Numbers that are equal in all of a way's parents stay so."""
    for place in range(common):
        for other in range(place):
            if way.tied(place, other):
                changed = place if own[place] != before[place] else other
                own[place] = own[other] = own[changed]


def _sizes(own: Choices, most: Mapping[int, int]) -> list[int]:
    """The places of what may be sizes with steps: a smaller number may be which of several
    strategies was drawn from, or which of a few sizes."""
    there = [place for place in most if place < len(own) and type(own[place]) is int]
    return [place for place in there if own[place] >= 2 * STEP]


def _beside_a_step(most: int, random_: random.Random) -> int:
    step = 1 << random_.randint(STEP.bit_length() - 1, most.bit_length() - 1)
    size = step * random_.randint(1, min(most // step, REPEATS)) + random_.choice(BESIDE)
    return min(size, most)


def _same(one: Any, other: Any) -> bool:
    return type(one) is int and type(other) is int and one == other
