"""What is asked of a process that a candidate may have harmed never waits beyond its deadline."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tpcheck.engines.forks import Forks
from tpcheck.errors import EngineUnavailable


class Silent(Forks):
    """One without a process."""

    @property
    def alive(self) -> bool:
        return not self._gone

    def wake(self) -> None:
        pass

    def said(self) -> str:
        return "its last words"


@pytest.fixture
def ends() -> Iterator[tuple[Silent, socket.socket]]:
    """The driver's side, and where to answer."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield Silent("gloo", mine), theirs


def soon() -> float:
    return time.monotonic() + 60


def test_answers_are_told_apart_by_their_numbers(ends: tuple[Silent, socket.socket]) -> None:
    forks, theirs = ends
    first, second = forks.request({"of": "a"}), forks.request({"of": "b"})
    for told in ({"id": second, "pid": 2}, {"dead": 7, "status": -9}, {"id": first, "pid": 1}):
        theirs.sendall(json.dumps(told).encode() + b"\n")
    answers = [forks.answer(number, soon()) for number in (first, second)]
    assert [answer and answer["pid"] for answer in answers] == [1, 2]
    assert forks.answer(first, time.monotonic()) is None, "it was given"


@pytest.mark.parametrize(
    "garbage", [b"\0\xff\n", b"7\n", b"[]\n", b'{"id": []}\n', b'{"dead": 1}\n', b"x" * (1 << 21)]
)
def test_garbage_is_the_end(ends: tuple[Silent, socket.socket], garbage: bytes) -> None:
    forks, theirs = ends
    theirs.setblocking(False)
    sent = 0
    while sent < len(garbage) and forks.alive:
        sent += theirs.send(garbage[sent:])
        assert forks.answer(1, time.monotonic() + 0.01) is None
    assert not forks.alive
    assert forks.answer(1, soon()) is None


def test_who_is_gone_is_not_waited_for(ends: tuple[Silent, socket.socket]) -> None:
    forks, theirs = ends
    theirs.close()
    assert forks.answer(1, soon()) is None
    with pytest.raises(EngineUnavailable, match="its last words"):
        forks.request({"of": "a"})
