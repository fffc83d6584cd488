"""The shelf: choices of cases worth another look, in a database of Hypothesis's on disk.

A case is kept as the choices by which Hypothesis drew it. Given them again, Hypothesis draws the
case; given a part of them, or those of two cases mixed, it draws one near.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    choices_from_bytes,
    choices_to_bytes,
)

from tpcheck.case import Case

#: Cases kept of one check and degree. With fewer, what only a few show is lost; with more, those
#: that were interesting hours ago take the turns of those that are now.
KEPT = 64


class Shelf:
    """On disk, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.database = DirectoryBasedExampleDatabase(folder)

    def parents(self, check: str, degree: int) -> list[bytes]:
        """Cases of a check at one degree that showed something new, in a fixed order."""
        return sorted(self.database.fetch(_key(check, f"tp={degree}")))

    def keep(self, check: str, degree: int, choices: bytes) -> None:
        """One more; the shelf of a check is full at `KEPT`, and then another goes."""
        key = _key(check, f"tp={degree}")
        there = self.parents(check, degree)
        if len(there) >= KEPT:
            self.database.delete(key, random.Random(choices).choice(there))
        self.database.save(key, choices)

    def note_failing(self, check: str, case: Case, choices: bytes) -> None:
        """By which choices a failing case can be shrunk."""
        self.database.save(_key(check, case.canonical()), choices)

    def of_failing(self, check: str, case: Case) -> bytes | None:
        return next(iter(self.database.fetch(_key(check, case.canonical()))), None)


def _key(check: str, what: str) -> bytes:
    return f"{check}\n{what}".encode(errors="surrogateescape")


def variants(parents: Sequence[bytes], count: int, key: str) -> list[bytes]:
    """Choices near those of `parents`, the same for the same `key`: a part of one from its
    beginning, the rest to be drawn; that with another's end; or one choice of another's."""
    random_ = random.Random(key)
    read = [choices for parent in parents if (choices := choices_from_bytes(parent))]
    found: dict[bytes, None] = {}
    for _ in range(4 * count if read else 0):
        one, other = random_.choice(read), random_.choice(read)
        at = random_.randrange(len(one))
        mixed = list(one)
        match random_.randrange(3):
            case 0:
                mixed = mixed[:at]
            case 1:
                mixed[at:] = other[at:]
            case 2:
                mixed[at : at + 1] = other[at : at + 1]
        found[choices_to_bytes(mixed)] = None
        if len(found) == count:
            break
    return list(found)
