"""What forks processes for the driver (`ranks/forker.py`), as the driver sees it: what is asked of
it, what it answers, and how each of them ended."""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from json import dumps, loads
from typing import Any

from tpcheck.engines.hosts import Host, readable
from tpcheck.engines.logs import Log
from tpcheck.errors import EngineUnavailable
from tpcheck.protocol import ends

#: Seconds in which ranks must be up and have met: importing torch takes 2 s on an idle machine and
#: a minute on one that thrashes. Ranks that never start are reported after this long.
START_LIMIT = 120.0
#: Seconds in which is said how a host ended; after them whoever should is said to be gone.
STATUS_LIMIT = 2.0
#: Bytes without the end of a line after which what comes is taken for garbage.
_LINE = 1 << 20


@dataclass(frozen=True)
class Awaited:
    """A host that has been asked for, and may not be there yet.

    Args:
        number: of the request.
    """

    number: int
    index: int
    ranks: list[int]
    connection: socket.socket
    log: Log

    def forget(self) -> None:
        self.connection.close()
        self.log.close()


class Forks(ABC):
    """The driver's end of a control socket. One process answers, in the order of the requests.

    Args:
        engine: the engine's name, for messages.
    """

    def __init__(self, engine: str, control: socket.socket) -> None:
        self.engine, self._control = engine, control
        control.settimeout(START_LIMIT)
        self._answers: dict[int, dict[str, Any]] = {}  # number of a request → what came of it
        self._partial = b""
        self._statuses: dict[int, int] = {}
        self._asked = 0
        self._gone = False  # what comes is no answer any more

    # ---- what differs

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it may still answer."""

    @abstractmethod
    def wake(self) -> None:
        """Lets it go on where a candidate has stopped it."""

    @abstractmethod
    def said(self) -> str:
        """The end of what it wrote to its log."""

    # ---- hosts

    def ask(
        self, index: int, ranks: list[int], request: dict[str, Any], board: int, of: str
    ) -> Awaited:
        """Asks for a host process for `ranks`; `request` says of what world (`ranks/host.py`).

        Args:
            board: the descriptor of its memory.
            of: what it belongs to, for `end`.

        Raises:
            EngineUnavailable: nobody is there to be asked.
        """
        mine, theirs = ends.pair()
        reads, writes = os.pipe()
        log = Log(reads)
        try:
            with theirs:
                wanted = {**request, "host": index, "ranks": ranks, "of": of}
                number = self.request(wanted, theirs.fileno(), writes, board)
        except EngineUnavailable:
            mine.close()
            log.close()
            raise
        finally:
            os.close(writes)
        return Awaited(number, index, ranks, mine, log)

    def host(self, awaited: Awaited, deadline: float) -> Host:
        """Waits for a host that was asked for.

        Raises:
            EngineUnavailable: it can't be forked, or nobody answers.
        """
        answer = self.answer(awaited.number, deadline)
        if answer is None or "pid" not in answer:
            why = answer["error"] if answer else self.said() or "its zygote does not answer"
            raise EngineUnavailable(
                f"engine {self.engine!r}: host {awaited.index} did not start: {why}"
            )
        return Host(awaited.index, awaited.ranks, awaited.connection, answer["pid"], awaited.log)

    def status_of(self, host: Host) -> int | None:
        """The exit code of a dead host, or minus the signal that killed it; None where nobody
        says."""
        self.wake()
        deadline = time.monotonic() + STATUS_LIMIT
        while host.pid not in self._statuses and time.monotonic() < deadline and self.alive:
            self._read(0.1)
        return self._statuses.get(host.pid)

    # ---- messages

    def load(self, modules: list[str]) -> None:
        """Has it import what processes to come need.

        Raises:
            EngineUnavailable: nobody is there to be asked.
        """
        self._send({"load": modules})

    def end(self, of: str) -> None:
        """Has it end what belongs to `of`, also what has been asked for and is not there yet.

        Raises:
            EngineUnavailable: nobody is there to be asked.
        """
        self._send({"end": of})

    def request(self, message: dict[str, Any], *descriptors: int) -> int:
        """Asks for a process that takes over the descriptors; returns the request's number.

        Raises:
            EngineUnavailable: nobody is there to be asked.
        """
        self._asked += 1
        self._send({**message, "id": self._asked, "descriptors": len(descriptors)}, *descriptors)
        return self._asked

    def answer(self, number: int, deadline: float) -> dict[str, Any] | None:
        """The answer to that request, or None where there is none."""
        while number not in self._answers:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._read(remaining):
                return None
        return self._answers.pop(number)

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        self.wake()
        line = dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(self._control, [line], descriptors)
            self._control.sendall(line[sent:])
        except OSError:
            why = self.said() or "its zygote is gone"
            raise EngineUnavailable(f"engine {self.engine!r} could not start: {why}") from None

    def _read(self, timeout: float) -> bool:
        """Reads what has been sent; False where there is nothing, or nobody sends any more."""
        if self._gone or not readable([self._control.fileno()], timeout):
            return False
        try:
            data = self._control.recv(1 << 16)
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._take(loads(line))
            self._gone = not data or len(self._partial) > _LINE
        except (OSError, ValueError, LookupError, TypeError):
            self._gone = True
        return not self._gone

    def _take(self, told: dict[str, Any]) -> None:
        if "dead" in told:
            self._statuses[int(told["dead"])] = int(told["status"])
        else:
            self._answers[int(told["id"])] = told
