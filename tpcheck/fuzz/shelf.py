"""The shelf: choices of cases worth another look, in a database of Hypothesis's on disk.

A case is kept as the choices by which Hypothesis drew it. Given them again, Hypothesis draws the
case; given others in the place of some, it draws one near.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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

    def often(self, counts: Mapping[str, int]) -> int:
        """How many cases showed the rarest of these words."""
        return min((counts.get(word, 0) for word in self.seen), default=0)


class Shelf:
    """On disk, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.database = DirectoryBasedExampleDatabase(folder)

    def parents(self, check: str, degree: int) -> list[Parent]:
        """Cases of a check at one degree that showed something rare, in a fixed order."""
        kept = sorted(self.database.fetch(_key(check, f"tp={degree}")))
        return [Parent(choices, self._seen(check, choices)) for choices in kept]

    def keep(self, check: str, degree: int, parent: Parent, counts: Mapping[str, int]) -> None:
        """One more; the shelf of a check is full at `KEPT`, and then the one goes of which the
        rarest word is the most common.

        Args:
            counts: word → how many cases showed it.
        """
        key = _key(check, f"tp={degree}")
        there = self.parents(check, degree)
        if len(there) >= KEPT:
            common = max(there, key=lambda one: (one.often(counts), one.choices))
            self.database.delete(key, common.choices)
            for seen in list(self.database.fetch(_seen_key(check, common.choices))):
                self.database.delete(_seen_key(check, common.choices), seen)
        self.database.save(key, parent.choices)
        words = json.dumps(sorted(parent.seen)).encode()
        self.database.save(_seen_key(check, parent.choices), words)

    def _seen(self, check: str, choices: bytes) -> frozenset[str]:
        """Nothing, where that was lost."""
        try:
            return frozenset(json.loads(next(iter(self.database.fetch(_seen_key(check, choices))))))
        except (StopIteration, ValueError, TypeError):
            return frozenset()

    def note_failing(self, check: str, case: Case, choices: bytes) -> None:
        """By which choices a failing case can be shrunk."""
        self.database.save(_key(check, case.canonical()), choices)

    def of_failing(self, check: str, case: Case) -> bytes | None:
        return next(iter(self.database.fetch(_key(check, case.canonical()))), None)


def _key(check: str, what: str) -> bytes:
    return f"{check}\n{what}".encode(errors="surrogateescape")


def _seen_key(check: str, choices: bytes) -> bytes:
    return _key(check, f"seen {hashlib.sha256(choices).hexdigest()}")
