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
from tpcheck.comms.post import WRAP, Post

#: Collectives remembered per rank; a case that runs more keeps its last ones, and a peer that is
#: further behind than this finds nothing to hold its own against.
SLOTS = 512
#: Bytes of a collective's description; what is longer is cut, in reports only.
TEXT = 360
#: Ranks that a record has room for: the bits of `members` and `awaits`.
RANKS = 64
#: What a rank is at, in the order in which it comes.
RUNNING, BUILT, DONE = 1, 2, 3

_RECORD = np.dtype(
    [
        ("epoch", "u4"),
        ("communicator", "u4"),
        ("group", "u4"),
        ("step", "u4"),
        ("fingerprint", "u4"),
        ("members", "u8"),
        ("awaits", "u8"),
        ("exchanges", "u4"),
        ("sent", "u4", (RANKS,)),
        ("received", "u4", (RANKS,)),
        ("length", "u4"),
        ("text", "u1", (TEXT,)),
    ]
)
_HEADER = np.dtype([("epoch", "u4"), ("state", "u4"), ("count", "u4"), ("turns", "u4")])
_REGION = _HEADER.itemsize + SLOTS * _RECORD.itemsize  # bytes per rank


class Board:
    """Shared memory without a name, with one region per rank; every process maps it. It goes with
    the last of them.

    Args:
        descriptor: of the memory, as `Board.new` has it; it may be closed afterwards.
    """

    #: Bytes of what a rank is at, in front of its collectives.
    HEAD = _HEADER.itemsize

    def __init__(self, descriptor: int, ranks: int) -> None:
        mapped = mmap.mmap(descriptor, ranks * _REGION)
        self._bytes = np.frombuffer(mapped, dtype="u1").reshape(ranks, _REGION)
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
            os.posix_fallocate(descriptor, 0, ranks * _REGION)
            seal(descriptor)
            return cls(descriptor, ranks), descriptor
        except OSError:
            os.close(descriptor)
            raise

    def _header(self, rank: int) -> np.ndarray:
        return self._bytes[rank, : _HEADER.itemsize].view(_HEADER)

    def _records(self, rank: int) -> np.ndarray:
        return self._bytes[rank, _HEADER.itemsize :].view(_RECORD)

    def begin(self, rank: int, epoch: int) -> None:
        """Rank `rank` starts case number `epoch`; what it posted before no longer counts."""
        header = self._header(rank)
        header["count"], header["turns"], header["state"] = 0, 0, RUNNING
        header["epoch"] = epoch

    def built(self, rank: int) -> None:
        """Rank `rank` has the candidate's module."""
        self._header(rank)["state"] = BUILT

    def done(self, rank: int) -> None:
        """Rank `rank` has come to the end of its case."""
        self._header(rank)["state"] = DONE

    def turn(self, rank: int) -> None:
        """An interpreted kernel of rank `rank` begins its next program."""
        self._header(rank)["turns"] += 1

    def post(self, rank: int, epoch: int, post: Post) -> None:
        """Announces a collective; the caller enters it afterwards."""
        header = self._header(rank)
        count = int(header["count"][0])
        record = self._records(rank)[count % SLOTS : count % SLOTS + 1]
        text = post.text.encode()[:TEXT]
        record["epoch"] = 0
        record["group"], record["step"] = post.group, post.step
        record["communicator"] = post.communicator
        record["fingerprint"], record["length"] = post.fingerprint, len(text)
        record["members"], record["awaits"] = _mask(post.members), _mask(post.awaits)
        record["exchanges"] = len(post.sent)
        for field, counts in (("sent", post.sent), ("received", post.received)):
            record[field][0, : len(counts)] = [count % WRAP for count in counts]
        record["text"][0, : len(text)] = np.frombuffer(text, dtype="u1")
        record["epoch"] = epoch
        header["count"] = count + 1

    def news(self, rank: int, known: tuple[int, int]) -> tuple[bytes, tuple[int, int]]:
        """What `rank` has written since, for a board that is not in the same memory; and what is
        known then. Nothing where that is the same.

        Args:
            known: as this returned it before; (0, 0) at first.
        """
        header = self._header(rank).copy()
        epoch, count = int(header["epoch"][0]), int(header["count"][0])
        first = known[1] if known[0] == epoch else 0
        slots = [i % SLOTS for i in range(max(first, count - SLOTS), count)]
        records = self._records(rank)[slots]
        numbers = np.array([len(slots), *slots], dtype="u4")
        return header.tobytes() + numbers.tobytes() + records.tobytes(), (epoch, count)

    def take(self, rank: int, news: bytes) -> None:
        """Writes what another board had news of."""
        size = _HEADER.itemsize
        count = int(np.frombuffer(news, "u4", 1, size)[0])
        slots = np.frombuffer(news, "u4", count, size + 4)
        records = np.frombuffer(news, _RECORD, count, size + 4 + 4 * count)
        if count:
            self._records(rank)[slots] = records
        # what says that they are there comes last
        self._header(rank)[:] = np.frombuffer(news, _HEADER, 1)

    def find(self, rank: int, epoch: int, group: int, step: int) -> Post | None:
        """What `rank` posted as step `step` of `group` in this case, if it got there."""
        count = int(self._header(rank)["count"][0])
        records = self._records(rank)[: min(count, SLOTS)]  # beyond lies memory that none has used
        hits = np.flatnonzero(
            (records["epoch"] == epoch) & (records["group"] == group) & (records["step"] == step)
        )
        return self._post(records[hits[0]]) if len(hits) else None

    def last(self, rank: int, epoch: int, count: int = 3) -> list[Post]:
        """The last `count` collectives that `rank` posted in this case, oldest first."""
        if int(self._header(rank)["epoch"][0]) != epoch:
            return []
        total = int(self._header(rank)["count"][0])
        slots = [i % SLOTS for i in range(max(0, total - count), total)]
        return [self._post(self._records(rank)[slot]) for slot in slots]

    def count(self, rank: int, epoch: int) -> int:
        """How many collectives `rank` has entered in this case."""
        header = self._header(rank)
        return int(header["count"][0]) if int(header["epoch"][0]) == epoch else 0

    def turns(self, rank: int, epoch: int) -> int:
        """How many programs of interpreted kernels `rank` has begun in this case."""
        header = self._header(rank)
        return int(header["turns"][0]) if int(header["epoch"][0]) == epoch else 0

    def is_done(self, rank: int, epoch: int) -> bool:
        """Whether `rank` has come to the end of this case."""
        return self._state(rank, epoch) == DONE

    def is_built(self, rank: int, epoch: int) -> bool:
        """Whether the candidate's `build` is over on `rank` in this case."""
        return self._state(rank, epoch) >= BUILT

    def _state(self, rank: int, epoch: int) -> int:
        header = self._header(rank)
        return int(header["state"][0]) if int(header["epoch"][0]) == epoch else 0

    @staticmethod
    def _post(record: np.ndarray) -> Post:
        text = bytes(record["text"][: int(record["length"])]).decode(errors="replace")
        step, fingerprint, communicator, exchanges = (
            int(record[name]) for name in ("step", "fingerprint", "communicator", "exchanges")
        )
        members, awaits = (_ranks(int(record[name])) for name in ("members", "awaits"))
        sent, received = (tuple(record[name][:exchanges].tolist()) for name in ("sent", "received"))
        return Post(members, step, fingerprint, text, communicator, awaits, sent, received)

    def absent(self, rank: int, epoch: int) -> list[int]:
        """The members that have not entered the last collective that `rank` entered."""
        for post in self.last(rank, epoch, 1):
            return [
                peer
                for peer in post.members
                if peer != rank and self.find(peer, epoch, post.group, post.step) is None
            ]
        return []

    def circle(self, rank: int, epoch: int) -> list[int]:
        """The ranks of a circle in which each waits for the next and the last for `rank`, which
        has just posted and is about to enter; empty where there is none.

        Sound while others write: `rank` itself stands still. A peer whose last post awaits
        `rank` therefore stands still too, and so does who waits for that peer, and so on
        backwards; nothing that is read of a rank that stands still can be out of date.
        """
        awaits = self._awaited(rank, epoch)
        if not awaits:
            return []
        next_of: dict[int, int] = {}  # of each rank that is known to stand still: whom it awaits
        still = [rank]
        for waited in still:
            for peer in range(self.ranks):
                if peer in next_of or peer == rank or waited not in self._awaited(peer, epoch):
                    continue
                next_of[peer] = waited
                still.append(peer)
                if peer in awaits:
                    circle = [rank, peer]
                    while circle[-1] != rank:
                        circle.append(next_of[circle[-1]])
                    return circle[:-1]
        return []

    def _awaited(self, rank: int, epoch: int) -> list[int]:
        """Those whom `rank` waits for in its last collective: they have not entered it."""
        return [
            peer
            for post in self.last(rank, epoch, 1)
            for peer in post.awaits
            if peer != rank and self.find(peer, epoch, post.group, post.step) is None
        ]


def _mask(ranks: tuple[int, ...]) -> int:
    return sum(1 << rank for rank in ranks)


def _ranks(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
