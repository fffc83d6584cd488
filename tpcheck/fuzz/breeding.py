"""Cases near others, by the choices that drew them. What all cases that took a way have in common
is likely to be why they took it: that is kept, and the rest drawn anew.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck.fuzz.shelf import Parent
from tpcheck.fuzz.steps import BESIDE, Choices, beside_a_step, largest_sizes, read, sizes

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

#: How often two sizes stay equal that are so in all parents of a way, which are as large in all.
TIED = 0.5

#: How often a size is put beside a step, or beside another size.
BESIDE_SHARE = 0.4


@dataclass
class _Way:
    """What some parents have shown and others have not, and the choices of those that have."""

    word: str
    parents: list[Choices]

    def shares(self, place: int) -> bool:
        """Whether all of them have the same there."""
        first = self.parents[0][place]
        return all(type(one[place]) is type(first) and one[place] == first for one in self.parents)

    @cached_property
    def tied(self) -> list[list[int]]:
        """The places, of two and more each, where each of them has one number."""
        there: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for place in range(min(map(len, self.parents))):
            numbers = tuple(one[place] for one in self.parents if type(one[place]) is int)
            if len(numbers) == len(self.parents):
                there[numbers].append(place)
        return [places for places in there.values() if len(places) > 1]


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
    of = [(one, list(own)) for one in parents if (own := choices_from_bytes(one.choices))]
    ways = _ways(of, counts)
    pool = read(others) or [own for _, own in of]
    most = largest_sizes(pool)
    found: dict[bytes, None] = {}
    for _ in range(4 * wanted if of else 0):
        weights = [1 / (1 + counts.get(way.word, 0) + made[way.word]) ** 2 for way in ways]
        (way,) = random_.choices(ways, weights)
        made[way.word] += 1
        child = _child(way, random_.choice(pool), most, random_)
        found[choices_to_bytes(child)] = None
        if len(found) == wanted:
            break
    return list(found)


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
    if (places := sizes(own[:common], most)) and random_.random() < BESIDE_SHARE:
        place = random_.choice(places)
        like = random_.choice(places)
        own[place] = (
            beside_a_step(most[place], random_)
            if like == place or random_.random() < 0.5
            else own[like] + random_.choice(BESIDE)
        )
    _tie(way, own, before, most, random_)
    return own


def _tie(
    way: _Way, own: Choices, before: Choices, most: Mapping[int, int], random_: random.Random
) -> None:
    """Numbers that are equal in all of a way's parents stay so: of sizes that all of them share it
    may be by chance."""
    for places in way.tied:
        if way.shares(places[0]):
            first, *more = [place for place in places if place in most] or places[:1]
            places = [first, *(place for place in more if random_.random() < TIED)]
        changed = next((place for place in places if own[place] != before[place]), places[0])
        for place in places:
            own[place] = own[changed]
