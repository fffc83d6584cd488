"""The board: shared memory on which every rank posts each collective before it enters it.

With it a rank that arrives at a collective sees at once that a peer went into another one as the
same step of the same group (reduce op included), that one of an all-to-all sends what the other
does not expect, or that it is waited for by the very rank that it is about to wait for; and the
driver sees what each rank of a stuck case is waiting for, without a word from the ranks. One region
per rank, one writer per region, so no locks.
"""

from __future__ import annotations

import mmap
import os

import numpy as np

from tpcheck.comms.memory import new_memory, seal
from tpcheck.comms.post import Post
from tpcheck.comms.region import (
    BUILT,
    COUNT,
    DONE,
    EPOCH,
    FINGERPRINT,
    IN_NONE,
    KEY,
    NUMBERS,
    REGION,
    SLOTS,
    STATE,
    TURNS,
    WAITS,
    Region,
)


class Board:
    """Shared memory without a name, with one region per rank; every process maps it. It goes with
    the last of them.

    Args:
        descriptor: of the memory, as `Board.new` has it; it may be closed afterwards.
    """

    #: Bytes of what a rank is at, in front of its collectives.
    HEAD = 4 * NUMBERS

    def __init__(self, descriptor: int, ranks: int) -> None:
        memory = memoryview(mmap.mmap(descriptor, ranks * REGION))
        starts = range(0, ranks * REGION, REGION)
        self._regions = [Region(memory[start : start + REGION]) for start in starts]
        self.ranks = ranks

    @classmethod
    def new(cls, ranks: int) -> tuple[Board, int]:
        """A board and its descriptor. All of its memory is there: none of it can be wanting later,
        when whoever writes would die of it.

        Raises:
            OSError: there is not enough memory.
        """
        descriptor = new_memory()
        try:
            os.posix_fallocate(descriptor, 0, ranks * REGION)
            seal(descriptor)
            return cls(descriptor, ranks), descriptor
        except OSError:
            os.close(descriptor)
            raise

    def begin(self, rank: int, epoch: int) -> None:
        """Rank `rank` starts case number `epoch`; what it posted before no longer counts."""
        self._regions[rank].begin(epoch)

    def built(self, rank: int) -> None:
        """Rank `rank` has the candidate's module."""
        self._regions[rank].head[STATE] = BUILT

    def done(self, rank: int) -> None:
        """Rank `rank` has come to the end of its case."""
        self._regions[rank].head[STATE] = DONE

    def turn(self, rank: int) -> None:
        """An interpreted kernel of rank `rank` begins its next program."""
        self._regions[rank].head[TURNS] += 1

    def post(self, rank: int, epoch: int, post: Post) -> None:
        """Announces a collective; the caller enters it afterwards."""
        self._regions[rank].write(epoch, post)

    def waits(self, rank: int, epoch: int, number: int | None) -> None:
        """Rank `rank` waits in the collective that it posted as this one, from 1; or in none."""
        head = self._regions[rank].head
        if head[EPOCH] == epoch:
            head[WAITS] = IN_NONE if number is None else number

    def waited(self, rank: int, epoch: int) -> Post | None:
        """The collective in which `rank` waits: the last one, where it has not said otherwise."""
        region = self._regions[rank]
        return None if (slot := region.waits(epoch)) is None else region.read(slot)

    def news(self, rank: int, known: tuple[int, int]) -> tuple[bytes, tuple[int, int]]:
        """What `rank` has written since, for a board that is not in the same memory; and what is
        known then. Nothing where that is the same.

        Args:
            known: as this returned it before; (0, 0) at first.
        """
        region = self._regions[rank]
        head = region.head.tobytes()
        numbers = np.frombuffer(head, "u4").tolist()
        epoch, count = numbers[EPOCH], numbers[COUNT]
        first = known[1] if known[0] == epoch else 0
        slots = [i % SLOTS for i in range(max(first, count - SLOTS), count)]
        told = np.array([len(slots), *slots], dtype="u4")
        parts = b"".join(of[slots].tobytes() for of in region.arrays)
        return head + told.tobytes() + parts, (epoch, count)

    def take(self, rank: int, news: bytes) -> None:
        """Writes what another board had news of, in the order in which the rank has written it:
        others read meanwhile."""
        region, at = self._regions[rank], self.HEAD
        count = int(np.frombuffer(news, "u4", 1, at)[0])
        slots = np.frombuffer(news, "u4", count, at + 4)
        at += 4 + 4 * count
        epoch, state, known, turns, waits = np.frombuffer(news, "u4", NUMBERS).tolist()
        if region.head[EPOCH] != epoch:
            region.begin(epoch)
        told = []
        for array in region.arrays if count else ():
            size = count * array.shape[1]
            told.append(np.frombuffer(news, array.dtype, size, at).reshape(count, -1))
            at += size * array.itemsize
        if told:
            region.take(slots, *told)
        region.head[STATE], region.head[TURNS] = state, turns
        region.head[COUNT] = known  # what says that they are there comes last
        region.head[WAITS] = waits

    def find(self, rank: int, epoch: int, group: int, step: int) -> Post | None:
        """What `rank` posted as step `step` of `group` in this case, if it got there."""
        region = self._regions[rank]
        if (slot := region.slot(epoch, group, step)) is None:
            return None
        found = region.read(slot)
        return found if region.has(slot, epoch, group, step) else None

    def is_unlike(self, rank: int, epoch: int, post: Post) -> bool:
        """Whether `rank` has posted another collective as this step of its group."""
        region = self._regions[rank]
        at = epoch, post.group, post.step
        if (slot := region.slot(*at)) is None:
            return False
        other = region.keys[KEY * slot + FINGERPRINT] != post.fingerprint
        return other and region.has(slot, *at)  # else it is of `SLOTS` collectives later

    def last(self, rank: int, epoch: int, count: int = 3) -> list[Post]:
        """The last `count` collectives that `rank` posted in this case, oldest first."""
        region, total = self._regions[rank], self.count(rank, epoch)
        return [region.read(i % SLOTS) for i in range(max(0, total - count), total)]

    def parted(self, rank: int, peer: int, epoch: int) -> tuple[Post, Post] | None:
        """The collective from which on `rank` and `peer` entered all those of the group in which
        `rank` waits in another pass or module, or at another line, than the other; None where the
        last one that both entered is the same. Two that are in step may have one, as the two ends
        of a broadcast, but not all after it. Of ranks that stand still."""
        ways: tuple[Post, Post] | None = None
        every = self.last(rank, epoch, SLOTS)
        waited = self.waited(rank, epoch)
        for mine in (post for post in every if waited and post.group == waited.group):
            theirs = self.find(peer, epoch, mine.group, mine.step)
            if theirs is None:
                break
            apart = (mine.place, mine.where) != (theirs.place, theirs.where)
            ways = (ways or (mine, theirs)) if apart else None
        return ways

    def count(self, rank: int, epoch: int) -> int:
        """How many collectives `rank` has entered in this case."""
        return self._of(rank, epoch, COUNT)

    def turns(self, rank: int, epoch: int) -> int:
        """How many programs of interpreted kernels `rank` has begun in this case."""
        return self._of(rank, epoch, TURNS)

    def is_done(self, rank: int, epoch: int) -> bool:
        """Whether `rank` has come to the end of this case."""
        return self._of(rank, epoch, STATE) == DONE

    def is_built(self, rank: int, epoch: int) -> bool:
        """Whether the candidate's `build` is over on `rank` in this case."""
        return self._of(rank, epoch, STATE) >= BUILT

    def _of(self, rank: int, epoch: int, number: int) -> int:
        """A number of the rank's head; 0 where it is in another case."""
        head = self._regions[rank].head
        return head[number] if head[EPOCH] == epoch else 0

    def absent(self, rank: int, epoch: int) -> list[int]:
        """The members that have not entered the collective in which `rank` waits."""
        if (post := self.waited(rank, epoch)) is None:
            return []
        at = epoch, post.group, post.step
        others = (peer for peer in post.members if peer != rank)
        return [peer for peer in others if self._regions[peer].slot(*at) is None]

    def circle(self, rank: int, epoch: int) -> list[int]:
        """The ranks of a circle in which each waits for the next and the last for `rank`, which
        has just posted and is about to enter; empty where there is none.

        Sound while others write: `rank` itself stands still. A peer whose last post awaits
        `rank` therefore stands still too, and so does who waits for that peer, and so on
        backwards; nothing that is read of a rank that stands still can be out of date.
        """
        next_of: dict[int, int] = {}  # of each rank that is known to stand still: whom it awaits
        still = [rank]
        for waited in still:
            for peer in range(self.ranks):
                if peer in next_of or peer == rank or not self._waits(peer, waited, epoch):
                    continue
                next_of[peer] = waited
                still.append(peer)
                if self._waits(rank, peer, epoch):
                    circle = [rank, peer]
                    while circle[-1] != rank:
                        circle.append(next_of[circle[-1]])
                    return circle[:-1]
        return []

    def _waits(self, rank: int, other: int, epoch: int) -> bool:
        """Whether `rank` waits in its last collective for `other`, which has not entered it."""
        region = self._regions[rank]
        slot = region.last(epoch)
        if slot is None or not region.awaits[slot] >> other & 1 or other == rank:
            return False
        return self._regions[other].slot(epoch, *region.key(slot)) is None
