"""Sizes beside a multiple of a power of two, where blocks of kernels end. Any number among the
choices that draw a case may be one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis.database import choices_from_bytes, choices_to_bytes

#: How far a number may be from another, or from a step, that it is to be beside.
BESIDE = (-1, 0, 1)

#: The least step; and the largest number that may be a size: a seed is larger now and then.
STEP, LARGEST = 8, 2**16

#: Of how many steps a size is, at most. With more, cases are larger and take longer.
REPEATS = 4

Choices = list[Any]


def beside_steps(drawn: Sequence[bytes], key: str) -> list[bytes]:
    """The same choices with one or two of the sizes put beside a step."""
    random_ = random.Random(key)
    all_drawn = read(drawn)
    most = largest_sizes(all_drawn)
    for own in all_drawn:
        for _ in range(random_.randint(1, 2)):
            if places := sizes(own, most):
                place = random_.choice(places)
                own[place] = beside_a_step(most[place], random_)
    return [choices_to_bytes(own) for own in all_drawn]


def read(drawn: Sequence[bytes]) -> list[Choices]:
    """As Hypothesis's database has them; what it can't read is left out."""
    return [list(choices) for one in drawn if (choices := choices_from_bytes(one))]


def largest_sizes(drawn: Sequence[Choices]) -> dict[int, int]:
    """Place of a choice → the largest number there, where that may be a size with steps."""
    most: dict[int, int] = {}
    for own in drawn:
        for place, value in enumerate(own):
            if type(value) is int:
                most[place] = max(most.get(place, 0), value)
    return {place: value for place, value in most.items() if 2 * STEP <= value <= LARGEST}


def sizes(own: Choices, most: Mapping[int, int]) -> list[int]:
    """The places of what may be sizes with steps: a smaller number may be which of several
    strategies was drawn from, or which of a few sizes."""
    there = [place for place in most if place < len(own) and type(own[place]) is int]
    return [place for place in there if own[place] >= 2 * STEP]


def beside_a_step(most: int, random_: random.Random) -> int:
    """A multiple of some step, or one more or less; `most` at most."""
    step = 1 << random_.randint(STEP.bit_length() - 1, most.bit_length() - 1)
    size = step * random_.randint(1, min(most // step, REPEATS)) + random_.choice(BESIDE)
    return min(size, most)
