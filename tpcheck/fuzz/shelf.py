"""The shelf: choices of cases worth another look, in a database of Hypothesis's on disk.

A case is kept as the choices by which Hypothesis drew it. Given them again, Hypothesis draws the
case; given others in the place of some, it draws one near.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis.database import DirectoryBasedExampleDatabase, choices_from_bytes

from tpcheck.case import Case

#: Cases with one way, at most. With one, it is not seen what such cases have in common; with many,
#: what is common takes the place of what is rare.
PARENTS = 6

#: Cases kept of one check and degree. With fewer, what only a few show is lost; with more, those
#: that were interesting hours ago take the turns of those that are now.
KEPT = 64


@dataclass(frozen=True)
class Parent:
    """A case worth another look.

    Args:
        choices: by which it was drawn.
        seen: words of what was seen of it.
    """

    choices: bytes
    seen: frozenset[str] = frozenset()

    def often(self, counts: Mapping[str, int]) -> float:
        """How many cases showed the rarest of these words; ∞ where there is none."""
        return min((counts.get(word, 0) for word in self.seen), default=math.inf)


class Shelf:
    """On disk, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.database = DirectoryBasedExampleDatabase(folder)

    def parents(self, check: str, degree: int) -> list[Parent]:
        """Cases of a check at one degree that showed something rare, in a fixed order."""
        kept = sorted(self.database.fetch(_key(check, f"tp={degree}")))
        return [Parent(choices, self._seen(check, choices)) for choices in kept]

    def keep(
        self, check: str, degree: int, fresh: Iterable[Parent], counts: Mapping[str, int]
    ) -> list[Parent]:
        """Some more. Of more than `KEPT` those go of which the rarest word is the most common.

        Args:
            counts: word → how many cases showed it.

        Returns:
            those that are there now.
        """
        there = {parent.choices: parent for parent in self.parents(check, degree)}
        after = dict(there)
        for parent in fresh:
            after[parent.choices] = parent
            if (gone := _least_telling(parent, after.values(), counts)) is not None:
                del after[gone.choices]
        kept = sorted(after.values(), key=lambda one: (one.often(counts), one.choices))[:KEPT]
        left = {parent.choices: parent for parent in kept}
        for choices, parent in there.items():
            if left.get(choices) != parent:
                self._forget(check, degree, choices)
        for choices, parent in left.items():
            if there.get(choices) != parent:
                words = json.dumps(sorted(parent.seen)).encode()
                self.database.save(_seen_key(check, choices), words)
                self.database.save(_key(check, f"tp={degree}"), choices)
        return [left[choices] for choices in sorted(left)]

    def _forget(self, check: str, degree: int, choices: bytes) -> None:
        self.database.delete(_key(check, f"tp={degree}"), choices)
        for words in list(self.database.fetch(_seen_key(check, choices))):
            self.database.delete(_seen_key(check, choices), words)

    def _seen(self, check: str, choices: bytes) -> frozenset[str]:
        """Nothing, where that was lost."""
        try:
            words = json.loads(next(iter(self.database.fetch(_seen_key(check, choices)))))
        except (StopIteration, ValueError):
            return frozenset()
        words = words if isinstance(words, list) else []
        return frozenset(word for word in words if isinstance(word, str))

    def note_failing(self, check: str, case: Case, choices: bytes) -> None:
        """By which choices a failing case can be shrunk."""
        self.database.save(_key(check, case.canonical()), choices)

    def of_failing(self, check: str, case: Case) -> bytes | None:
        return next(iter(self.database.fetch(_key(check, case.canonical()))), None)


def _least_telling(
    new: Parent, among: Iterable[Parent], counts: Mapping[str, int]
) -> Parent | None:
    """Of more than `PARENTS` cases with the rarest way of a new one, that without which most of
    their choices differ: what they have in common is taken for what the way needs."""
    word = min(new.seen, key=lambda word: (counts.get(word, 0), word), default=None)
    of = [parent for parent in among if word in parent.seen]
    if len(of) <= PARENTS:
        return None
    read = {parent.choices: choices_from_bytes(parent.choices) or () for parent in of}

    def without(one: Parent) -> tuple[int, bool]:
        return _differ([own for key, own in read.items() if key != one.choices]), one is new

    return max(of, key=without)


def _differ(of: Sequence[tuple[Any, ...]]) -> int:
    """How many different choices there are, over all places."""
    return sum(len({repr(choice) for choice in at}) for at in zip(*of, strict=False))


def _key(check: str, what: str) -> bytes:
    return f"{check}\n{what}".encode(errors="surrogateescape")


def _seen_key(check: str, choices: bytes) -> bytes:
    return _key(check, f"seen {hashlib.sha256(choices).hexdigest()}")
