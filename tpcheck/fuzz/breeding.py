"""Cases near others, by the choices that drew them: all but a few of a parent's, which is likely to
take the way that its parent took."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis.database import choices_from_bytes, choices_to_bytes

from tpcheck.fuzz.shelf import Parent

#: The share of a parent's choices that are another's, where several are. With more, little is left
#: of the way that the parent took; with less, what needs two changes at once takes long.
SHARE = 0.25

#: How far a number may be from another, or from a step, that it is to be beside.
BESIDE = (-1, 0, 1)

#: The least step; and the largest number that may be a size: a seed is larger now and then.
STEP, LARGEST = 8, 2**16

#: Of how many steps a size is, at most. With more, cases are larger and take longer.
REPEATS = 4

Choices = list[Any]


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
    read = [(one, choices) for one in parents if (choices := choices_from_bytes(one.choices))]
    pools = [_read(others) or [list(one) for _, one in read], [list(one) for _, one in read]]
    most = _most(pools[0])
    kinds = _kinds([one for one, _ in read])
    found: dict[bytes, None] = {}
    for _ in range(4 * wanted if read else 0):
        weights = [1 / (1 + counts.get(way, 0) + made[way]) ** 2 for way, _ in kinds]
        ((way, among),) = random_.choices(kinds, weights)
        made[way] += 1
        child = list(read[random_.choice(among)][1])
        _change(child, random_.choice(random_.choice(pools)), most, random_)
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
            _beside_a_step(own, most, random_)
    return [choices_to_bytes(own) for own in read]


def _read(drawn: Sequence[bytes]) -> list[Choices]:
    return [list(choices) for one in drawn if (choices := choices_from_bytes(one))]


def _kinds(parents: Sequence[Parent]) -> list[tuple[str, list[int]]]:
    """Words that tell parents apart, and which of these show each; of several words that the same
    ones show, the first."""
    showing: defaultdict[str, list[int]] = defaultdict(list)
    for number, parent in enumerate(parents):
        for word in parent.seen or {""}:
            showing[word].append(number)
    kinds: dict[tuple[int, ...], str] = {}
    for word in sorted(showing):
        kinds.setdefault(tuple(showing[word]), word)
    return [(word, list(among)) for among, word in kinds.items()]


def _most(read: Sequence[Choices]) -> dict[int, int]:
    """Place of a choice → the largest number there, where that may be a size with steps."""
    most: dict[int, int] = {}
    for own in read:
        for place, value in enumerate(own):
            if type(value) is int:
                most[place] = max(most.get(place, 0), value)
    return {place: value for place, value in most.items() if 2 * STEP <= value <= LARGEST}


def _change(own: Choices, other: Choices, most: Mapping[int, int], random_: random.Random) -> None:
    """A few choices become another's, or lie beside what they are often to lie beside."""
    shared = min(len(own), len(other))
    at = random_.randrange(shared)
    match random_.randrange(5):
        case 0:  # and all that are the same number: sizes that are equal stay so
            alike = [i for i in range(shared) if i == at or _same(own[i], own[at])]
            for i in alike if random_.random() < 0.5 else [at]:
                own[i] = other[at]
        case 1:
            for i in range(shared):
                if random_.random() < SHARE:
                    own[i] = other[i]
        case 2:
            own[at:] = other[at:]
        case 3:
            numbers = [i for i in most if i < shared]
            if len(numbers) > 1:
                one, like = random_.sample(numbers, 2)
                own[one] = own[like] + random_.choice(BESIDE)
        case 4:
            _beside_a_step(own, most, random_)


def _beside_a_step(own: Choices, most: Mapping[int, int], random_: random.Random) -> None:
    places = [place for place in most if place < len(own) and type(own[place]) is int]
    if not places:
        return
    place = random_.choice(places)
    step = 1 << random_.randint(STEP.bit_length() - 1, most[place].bit_length() - 1)
    size = step * random_.randint(1, min(most[place] // step, REPEATS)) + random_.choice(BESIDE)
    own[place] = min(size, most[place])


def _same(one: Any, other: Any) -> bool:
    return type(one) is int and type(other) is int and one == other
