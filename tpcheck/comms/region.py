"""What one rank has on the board, as memory: what it is at, and its collectives.

Others read while the rank writes, without a lock. What says that something is there is written
last, and read first.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tpcheck.comms.post import WRAP, Post

Array = npt.NDArray[Any]

#: Collectives remembered per rank; a case that runs more keeps its last ones, and a peer that is
#: further behind than this finds nothing to hold its own against.
SLOTS = 512
#: Bytes of where a collective is entered and of its description; what is longer is cut, in reports
#: only.
TEXT = 400
#: Ranks that a record has room for: the bits of `members` and `awaits`.
RANKS = 64
#: What a rank is at, in the order in which it comes.
RUNNING, BUILT, DONE = 1, 2, 3

#: Instead of the number of the collective in which a rank waits, from 1: that it waits in the one
#: that it has entered last, if in any; and that it waits in none.
IN_LAST, IN_NONE = 0, 2**32 - 1

# The numbers of a region's head, and of a slot's key, which is what is looked for.
EPOCH, STATE, COUNT, TURNS, WAITS = range(5)
NUMBERS, KEY = 5, 4
_GROUP, _STEP, FINGERPRINT = 1, 2, 3
#: Of a record: members; communicator, how many are exchanged with, length of the text.
_ABOUT = struct.Struct("=QIII")
_EXCHANGED = _ABOUT.size
_TEXT = _EXCHANGED + 2 * RANKS * 4
_RECORD = _TEXT + TEXT
#: Where a region's keys begin, its awaited ranks, its records, and the next region; in bytes. Keys
#: stand together, so that all are looked through at once.
_KEYS = -(-4 * NUMBERS // 8) * 8
_AWAITS = _KEYS + 4 * KEY * SLOTS
_RECORDS = _AWAITS + 8 * SLOTS
REGION = _RECORDS + -(-_RECORD * SLOTS // 8) * 8


class Region:
    """What one rank writes, as memory."""

    def __init__(self, memory: memoryview) -> None:
        self.head = memory[: 4 * NUMBERS].cast("I")
        self.keys = memory[_KEYS:_AWAITS].cast("I")
        self.awaits = memory[_AWAITS:_RECORDS].cast("Q")
        self.records = memory[_RECORDS : _RECORDS + _RECORD * SLOTS]
        #: Its slots, as arrays: keys, awaited ranks, records.
        self.arrays = (
            np.asarray(self.keys).reshape(SLOTS, KEY),
            np.asarray(self.awaits).reshape(SLOTS, 1),
            np.asarray(self.records).reshape(SLOTS, _RECORD),
        )

    def begin(self, epoch: int) -> None:
        """Case number `epoch`, in which there is nothing so far."""
        self.head[COUNT], self.head[TURNS], self.head[STATE] = 0, 0, RUNNING
        self.head[WAITS] = IN_LAST
        self.head[EPOCH] = epoch

    def last(self, epoch: int) -> int | None:
        """The slot of the last collective of this case. Which case it is comes first: a rank that
        begins one sets that last, and what was counted before may be of another."""
        if self.head[EPOCH] != epoch or not (count := self.head[COUNT]):
            return None
        return (count - 1) % SLOTS

    def waits(self, epoch: int) -> int | None:
        """The slot of the collective of this case in which the rank waits, as far as is known."""
        number = self.head[WAITS]
        if number == IN_LAST or self.head[EPOCH] != epoch:
            return self.last(epoch)
        kept = 0 <= self.head[COUNT] - number < SLOTS
        return (number - 1) % SLOTS if kept else None

    def key(self, slot: int) -> tuple[int, int]:
        """(group, step) of a collective."""
        at = KEY * slot
        return self.keys[at + _GROUP], self.keys[at + _STEP]

    def slot(self, epoch: int, group: int, step: int) -> int | None:
        """That of step `step` of the group in this case, if the rank got there."""
        if not (count := self.head[COUNT]):
            return None
        last = (count - 1) % SLOTS
        if self.keys[KEY * last] == epoch and self.keys[KEY * last + _GROUP] == group:
            if (there := self.keys[KEY * last + _STEP]) == step:
                return last
            if there < step:  # steps of a group come in turn
                return None
        found = self.arrays[0][: min(count, SLOTS)]  # beyond lies memory that none has used
        of_group = (found[:, EPOCH] == epoch) & (found[:, _GROUP] == group)
        hits = np.flatnonzero(of_group & (found[:, _STEP] == step))
        return int(hits[0]) if len(hits) else None

    def has(self, slot: int, epoch: int, group: int, step: int) -> bool:
        """Whether the slot still is of that collective: what was read of it is whole then."""
        return self.keys[KEY * slot] == epoch and self.key(slot) == (group, step)

    def write(self, epoch: int, post: Post) -> None:
        count = self.head[COUNT]
        slot = count % SLOTS
        said = "\0".join([post.place, post.where, post.text])
        at, text = KEY * slot, said.encode()[:TEXT]
        self.keys[at] = 0
        self.keys[at + _GROUP], self.keys[at + _STEP] = post.group, post.step
        self.keys[at + FINGERPRINT] = post.fingerprint
        self.awaits[slot] = mask_of(post.awaits)
        about = mask_of(post.members), post.communicator, len(post.sent), len(text)
        start = _RECORD * slot
        _ABOUT.pack_into(self.records, start, *about)
        for where, counts in enumerate((post.sent, post.received)):
            of = start + _EXCHANGED + where * RANKS * 4
            struct.pack_into(f"={len(counts)}I", self.records, of, *(c % WRAP for c in counts))
        self.records[start + _TEXT : start + _TEXT + len(text)] = text
        self.keys[at] = epoch
        self.head[COUNT], self.head[WAITS] = count + 1, IN_LAST

    def take(self, slots: Array, keys: Array, awaits: Array, records: Array) -> None:
        """Writes collectives that were read elsewhere; of each its case last, which says that it is
        there."""
        own_keys, own_awaits, own_records = self.arrays
        own_keys[slots, EPOCH] = 0
        own_keys[slots, 1:] = keys[:, 1:]
        own_awaits[slots], own_records[slots] = awaits, records
        own_keys[slots, EPOCH] = keys[:, EPOCH]

    def read(self, slot: int) -> Post:
        start = _RECORD * slot
        members, communicator, exchanges, length = _ABOUT.unpack_from(self.records, start)
        sent, received = (
            struct.unpack_from(f"={exchanges}I", self.records, start + _EXCHANGED + where)
            for where in (0, RANKS * 4)
        )
        text = bytes(self.records[start + _TEXT : start + _TEXT + length]).decode(errors="replace")
        place, where, said = [*text.split("\0", 2), "", ""][:3]
        fingerprint, awaits = self.keys[KEY * slot + FINGERPRINT], ranks_of(self.awaits[slot])
        step = self.key(slot)[1]
        about = communicator, awaits, sent, received, place, where
        return Post(ranks_of(members), step, fingerprint, said, *about)


@functools.lru_cache(1024)
def mask_of(ranks: tuple[int, ...]) -> int:
    return sum(1 << rank for rank in ranks)


@functools.lru_cache(1024)
def ranks_of(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
