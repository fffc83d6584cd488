"""Requests come over a control socket in any pieces, each with the descriptors that are its own."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tpcheck.ranks.forker import Requests


@pytest.fixture
def ends() -> Iterator[tuple[Requests, socket.socket]]:
    """What is read, and where to write to it."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield Requests(mine), theirs


def line(**request: Any) -> bytes:
    return json.dumps(request).encode() + b"\n"


def test_requests_in_one_piece_keep_their_descriptors(ends: tuple[Requests, socket.socket]) -> None:
    requests, theirs = ends
    pipes = [os.pipe() for _ in range(2)]
    both = line(id=1, descriptors=1) + line(end="a") + line(id=2, descriptors=3)
    socket.send_fds(theirs, [both], [pipes[0][1], *pipes[1], pipes[0][0]])
    assert requests.read()
    first, between, last = requests.whole()
    assert (first[0]["id"], between[0]["end"], last[0]["id"]) == (1, "a", 2)
    assert [len(given) for _, given in (first, between, last)] == [1, 0, 3]
    os.write(first[1][0], b"x")
    assert os.read(last[1][2], 1) == b"x"
    for descriptor in (*first[1], *last[1], *pipes[0], *pipes[1]):
        os.close(descriptor)


def test_a_request_in_pieces_is_taken_when_it_is_whole(
    ends: tuple[Requests, socket.socket],
) -> None:
    requests, theirs = ends
    whole = line(load=["a", "b"])
    theirs.sendall(whole[:5])
    assert requests.read() and list(requests.whole()) == []
    theirs.sendall(whole[5:])
    assert requests.read() and list(requests.whole()) == [({"load": ["a", "b"]}, [])]


def test_the_end_of_the_driver_is_told(ends: tuple[Requests, socket.socket]) -> None:
    requests, theirs = ends
    theirs.close()
    assert not requests.read()
