"""A host process as the driver sees it: its messages, its log, its stacks, its end.

A candidate runs in that process, so nothing of it is trusted: neither its socket nor what it sends
nor that it lives. Nothing here waits without a limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Iterable
from typing import Any

from tpcheck.engines.logs import Log
from tpcheck.protocol import wire
from tpcheck.vocabulary import Lost

#: Seconds in which hosts' faulthandlers have written their stacks; a host that takes longer is
#: shown without them.
STACKS_LIMIT = 1.0
#: Seconds of silence after which stacks are whole: they are written line by line.
STACKS_PAUSE = 0.05
#: Seconds between a host's socket closing and its end; one that lives on has closed it itself.
#: Shorter would call a slow death a closed socket, which has another sentence.
END_LIMIT = 1.0
#: Seconds that a host has to take a message: it waits for one, unless a candidate has stopped it.
SEND_LIMIT = 30.0
#: Bytes that are read of a socket in one go.
_CHUNK = 1 << 20


class Host:
    """One process that hosts some of the ranks.

    Args:
        connection: the driver's end of its socket.
        log: the driver's end of the pipe that it prints to.
        parts: the candidates that it has been given.
    """

    def __init__(
        self, index: int, ranks: list[int], connection: socket.socket, pid: int, log: Log
    ) -> None:
        self.index, self.ranks, self.pid, self.log = index, ranks, pid, log
        self.parts: set[str] = set()
        self._connection = connection
        connection.setblocking(False)
        self._inbox = wire.Inbox()
        self._process, self._ended = opened(pid)
        self._open = True
        self._garbled = False
        self._closed_at: float | None = None

    # ---- messages

    def send(self, message: Any) -> bool:
        """Sends one message of `protocol.messages`; False where the host does not take it."""
        return self.send_framed(wire.framed(message))

    def send_framed(self, message: bytes) -> bool:
        """As `send`, of a message that is framed once for several hosts."""
        left = memoryview(message)
        deadline = time.monotonic() + SEND_LIMIT
        while left:
            try:
                left = left[self._connection.send(left) :]
            except BlockingIOError:
                self.log.read()  # a host that prints may wait for that before it reads
                select.select([], [self._connection], [], 0.1)
                if time.monotonic() > deadline:
                    return False
            except OSError:
                return False
        return True

    def take(self) -> Any:
        """The next whole message that has come, or None."""
        body = self.take_body()
        try:
            return None if body is None else wire.unpickled(body)
        except wire.Garbled:
            self._garbled = True
            return None

    def take_body(self) -> bytes | None:
        """As `take`, as it was sent: for somebody else to read."""
        try:
            return None if self._garbled else self._inbox.take()
        except wire.Garbled:
            self._garbled = True
            return None

    def ship(self, work: Any) -> None:
        """Sends the files of a case, where the host does not see those of the driver."""

    @property
    def lost(self) -> Lost | None:
        """Why no message will come any more; None while one may. To be asked after `take`."""
        if self._garbled:
            return Lost.GARBLED
        if self._ended:
            return Lost.ENDED
        if self._closed_at is not None and time.monotonic() > self._closed_at + END_LIMIT:
            return Lost.CLOSED
        return None

    # ---- looking at it

    def descriptors(self) -> list[int]:
        """What to wait on for news of it."""
        own = [self._connection.fileno()] if self._open else []
        process = [] if self._process is None or self._ended else [self._process]
        log = [] if self.log.descriptor is None else [self.log.descriptor]
        return own + process + log

    def look(self) -> None:
        """Takes what has come, without waiting."""
        self.log.read()
        ended = self._process is not None and bool(readable([self._process], 0.0))
        self._read()  # after the question: what it sent before it ended is there now
        self._ended = self._ended or ended

    def _read(self) -> None:
        try:
            while self._open:
                data = self._connection.recv(_CHUNK)
                self._inbox.feed(data)
                if not data:
                    self._hang_up()
                if len(data) < _CHUNK:
                    return
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()

    def _hang_up(self) -> None:
        self._open, self._closed_at = False, time.monotonic()
        self._ended = self._ended or self._process is None  # nothing else would tell of its end

    def kill(self) -> None:
        """Ends the process at once."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            os.close(self._process)
            self._process, self._ended = None, True
        self._connection.close()
        self.log.close()

    def ask_for_stacks(self) -> None:
        """Has its faulthandler write the Python stacks of all its threads into the log."""
        self._signal(signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            if self._process is not None:
                signal.pidfd_send_signal(self._process, number)
            elif not self._ended:
                os.kill(self.pid, number)

    def log_tail(self) -> str:
        """The end of what it printed."""
        self.log.read()
        return self.log.tail(4000)


def watch(hosts: Iterable[Host], timeout: float) -> None:
    """Waits until one of the hosts has news, or `timeout` seconds; takes what has come."""
    hosts = list(hosts)
    readable([fd for host in hosts for fd in host.descriptors()], timeout)
    for host in hosts:
        host.look()


def without(hosts: Iterable[Host], candidate: str) -> list[Host]:
    """Those that have not been given a candidate, by its key."""
    return [host for host in hosts if candidate not in host.parts]


def stacks(hosts: Iterable[Host]) -> dict[int, str]:
    """The Python stacks of hosts, by index, as far as they come; all are asked at once."""
    asked = {host: host.log.written for host in hosts}
    for host in asked:
        host.ask_for_stacks()
    found: dict[int, str] = {}
    deadline = time.monotonic() + STACKS_LIMIT
    moved = True
    while moved or (len(found) < len(asked) and time.monotonic() < deadline):
        logs = [host.log.descriptor for host in asked if host.log.descriptor is not None]
        moved = bool(readable(logs, STACKS_PAUSE)) and time.monotonic() < deadline
        for host, before in asked.items():
            host.log.read()
            text = host.log.since(before)
            if "(most recent call first)" in text:
                found[host.index] = text.strip()
    return found


def readable(descriptors: list[int], timeout: float) -> list[int]:
    """Those that have news, after at most `timeout` seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0.0, timeout) * 1000)]


def opened(pid: int) -> tuple[int | None, bool]:
    """A descriptor of the process, which becomes readable when it ends and never names a later one
    of the same number, or None where the system has no such thing; and whether it has ended."""
    try:
        return os.pidfd_open(pid), False
    except ProcessLookupError:
        return None, True
    except (OSError, AttributeError):
        return None, False
