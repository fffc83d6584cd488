"""The shelf: choices of cases worth another look, in a database of Hypothesis's on disk.

A case is kept as the choices by which Hypothesis drew it. Given them again, Hypothesis draws the
case; given others in the place of some, it draws one near.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hypothesis.database import DirectoryBasedExampleDatabase

from tpcheck.case import Case

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
        new = {parent.choices: parent for parent in fresh}
        kept = sorted((there | new).values(), key=lambda one: (one.often(counts), one.choices))
        for gone in [*kept[KEPT:], *(there[choices] for choices in there.keys() & new.keys())]:
            self._forget(check, degree, gone.choices)
        for parent in kept[:KEPT]:
            if parent.choices in new:
                words = json.dumps(sorted(parent.seen)).encode()
                self.database.save(_seen_key(check, parent.choices), words)
                self.database.save(_key(check, f"tp={degree}"), parent.choices)
        return sorted(kept[:KEPT], key=lambda one: one.choices)

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
        return frozenset(filter(lambda word: isinstance(word, str), words))

    def note_failing(self, check: str, case: Case, choices: bytes) -> None:
        """By which choices a failing case can be shrunk."""
        self.database.save(_key(check, case.canonical()), choices)

    def of_failing(self, check: str, case: Case) -> bytes | None:
        return next(iter(self.database.fetch(_key(check, case.canonical()))), None)


def _key(check: str, what: str) -> bytes:
    return f"{check}\n{what}".encode(errors="surrogateescape")


def _seen_key(check: str, choices: bytes) -> bytes:
    return _key(check, f"seen {hashlib.sha256(choices).hexdigest()}")
