"""Sockets between driver and ranks wait, whatever default a candidate has set."""

from __future__ import annotations

import os
import socket

from tpcheck.protocol import ends


def test_both_ends_wait_and_so_does_who_takes_one_over() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.01)
    try:
        ours, theirs = ends.pair()
        taken = ends.taken_over(os.dup(theirs.fileno()))
    finally:
        socket.setdefaulttimeout(before)
    for end in (ours, theirs, taken):
        with end:
            assert end.gettimeout() is None and os.get_blocking(end.fileno())
