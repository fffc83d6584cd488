"""One rank's announcement of a collective."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass

from tpcheck.evidence import Uneven

#: Counts of elements are kept modulo this; two that differ by a multiple of it pass for equal.
WRAP = 2**32


@dataclass(frozen=True)
class Post:
    """One rank's announcement of a collective: the `step`-th of its group in this case.

    Args:
        members: the ranks of the group.
        fingerprint: a digest of what all members must have in common.
        text: the collective, for people.
        communicator: a digest of the group's name: groups of the same ranks are told apart by it.
        awaits: the members without which the rank certainly can't go on.
        place, where: in which pass and module, and at which line, it is entered.
        sent, received: of an all-to-all: how many elements go to, and come from, each member, in
            the order of `members`; `WRAP` of them count as none. Empty for other collectives.
    """

    members: tuple[int, ...]
    step: int
    fingerprint: int
    text: str
    communicator: int = 0
    awaits: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    place: str = ""
    where: str = ""

    @functools.cached_property
    def group(self) -> int:
        return digest(f"{self.members} {self.communicator}")

    def meets(self, rank: int, theirs: Post, peer: int) -> bool:
        """Whether what `rank` posted here and `peer` there, as the same step of the group, can
        meet: the same collective, and of an all-to-all what each expects of the other."""
        alike = theirs.fingerprint == self.fingerprint
        return alike and self.uneven(rank, theirs, peer) is None

    def uneven(self, rank: int, theirs: Post, peer: int) -> Uneven | None:
        """What one of two ranks sends in an all-to-all and the other does not expect."""
        if theirs.fingerprint != self.fingerprint or not self.sent or not theirs.sent:
            return None
        mine, other = self.members.index(rank), self.members.index(peer)
        ways = [
            Uneven(rank, peer, self.sent[other], theirs.received[mine]),
            Uneven(peer, rank, theirs.sent[mine], self.received[other]),
        ]
        ways.sort(key=lambda way: way.source)  # whichever of the two sees it says the same
        return next((way for way in ways if way.sent % WRAP != way.expected % WRAP), None)


def digest(text: str) -> int:
    """32 bits of `text`, never 0."""
    return zlib.crc32(text.encode()) or 1
