"""Messages of hosts: whole or not at all, and nothing that runs code."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

import pytest

from tpcheck.evidence import Died, Scene
from tpcheck.placement import Shard
from tpcheck.protocol import wire
from tpcheck.protocol.messages import Ended, RankReport
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind, Rule

ENDED = Ended(3, 1, Mismatch("rank", Kind.CRASH, 1, index=(0,), detail=Died(-9, "log", Scene())))


def taken(*pieces: bytes) -> list[Any]:
    """The messages that come out as the pieces go in."""
    inbox, found = wire.Inbox(), []
    for piece in pieces:
        inbox.feed(piece)
        while (body := inbox.take()) is not None:
            found.append(wire.unpickled(body))
    return found


def test_messages_come_as_they_were_sent_however_they_are_cut() -> None:
    report = RankReport(0, entries={"w": Shard(0)}, alarms={Rule.OURS}, usage=0.5)
    sent = [ENDED, Ended(4, 0, report)]
    whole = b"".join(map(wire.framed, sent))
    assert taken(whole) == sent
    assert taken(*(whole[i : i + 1] for i in range(len(whole)))) == sent
    assert taken(whole[:-1]) == sent[:1]


def test_a_member_of_an_enum_may_come_by_its_name() -> None:
    """As early releases of Python 3.11 pickle it."""
    assert taken(wire.framed([Runs(getattr, Kind, "CRASH")])) == [[Kind.CRASH]]


@pytest.mark.parametrize(
    "stray",
    [
        b"x",
        b"\0\0\0\x10",
        b"hello, driver",
        wire.framed(ENDED)[:8] + (2**40).to_bytes(8, "big"),
        wire.framed(ENDED) + b"\n",
    ],
)
def test_stray_bytes_are_not_a_message(stray: bytes) -> None:
    with pytest.raises(wire.Garbled):
        taken(stray)


class Runs:
    """What, unpickled, calls a function."""

    def __init__(self, call: Any, *given: Any) -> None:
        self.call, self.given = call, given

    def __reduce__(self) -> Any:
        return self.call, self.given


@pytest.mark.parametrize(
    "odd",
    [
        Runs(os._exit, 0),
        Runs(eval, "1"),
        Runs(getattr, "", "join"),
        Runs(getattr, Kind, "mro"),
        Runs(getattr, Ended, "__init__"),
        Runs(getattr, Kind, 0),
        Runs(Ended, 1),  # of ours, and not as it is made
        Runs(wire.framed, 1),  # of ours, and not data
        Ended(1, 1, Runs(os.getpid)),  # type: ignore[arg-type]
        lambda: None,
    ],
    ids=lambda odd: getattr(getattr(odd, "call", odd), "__name__", "nested"),
)
def test_what_would_run_code_is_not_a_message(odd: Any) -> None:
    with pytest.raises(wire.Garbled):
        taken(wire.framed(odd))


@pytest.mark.parametrize(
    "body", [b"", b"\x80", b"(((", pickle.dumps([1])[:-1], b"\x8e" + b"\xff" * 8]
)
def test_what_pickle_cannot_read_is_not_a_message(body: bytes) -> None:
    with pytest.raises(wire.Garbled):
        taken(wire.framed(0)[:8] + struct.pack(">Q", len(body)) + body)
