"""A process that others are forked from, on request of the driver: what its `Forks` asks for.

A request is a line of JSON with the descriptors that the new process takes over; each has a number,
which its answer has, too, and the name of what the process belongs to, under which it can be ended.

What a candidate forks may outlive its host. It becomes the forker's child then (it is a subreaper),
and is killed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from json import dumps, loads
from os import fork, getpid, getppid, kill, killpg, waitpid
from typing import Any

from tpcheck.process.children import children
from tpcheck.process.lineage import die_with, take_orphans

#: Seconds between two looks at whether the parent lives, while there is nothing else to do.
LOOK = 0.5
#: How often orphans are looked for: each that is killed may leave children of its own.
ROUNDS = 50
#: Descriptors that are taken of one message, at most; a request has three.
_TAKEN = 16


class Requests:
    """What comes over a control socket."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self._bytes = b""
        self._descriptors: list[int] = []

    def read(self) -> bool:
        """Takes what has come; False when the driver has gone."""
        data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 20, _TAKEN)
        self._bytes += data
        self._descriptors += descriptors
        return bool(data)

    def whole(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """The requests that have come whole, each with its descriptors."""
        while b"\n" in self._bytes:
            line, self._bytes = self._bytes.split(b"\n", 1)
            request = loads(line)
            count = request.get("descriptors", 0)
            own, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            yield request, own

    def close(self) -> None:
        self.control.close()
        for descriptor in self._descriptors:
            os.close(descriptor)


class Forker(ABC):
    """Forks processes on request until the driver, or its own parent, is gone.

    Args:
        parent: the number of its parent.
    """

    def __init__(self, control: socket.socket, parent: int) -> None:
        self.control, self.parent = control, parent
        self._requests = Requests(control)
        self._forked: dict[int, str] = {}  # number of a process → what it belongs to
        self._own: set[int] = set()  # children before the first request: of modules, when imported
        self.dismissed = False  # by a driver that lives
        self._wake, self._poke = os.pipe()
        os.set_blocking(self._poke, False)
        signal.set_wakeup_fd(self._poke, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        take_orphans()

    def answer(self) -> None:
        """Answers until nobody asks any more."""
        self._own = set(children())
        descriptors = [self.control.fileno(), self._wake]
        while self.parent_lives() and not self.dismissed:
            ready, _, _ = select.select(descriptors, [], [], LOOK)
            if self._wake in ready:
                os.read(self._wake, 512)
            self._reap()
            if self.control.fileno() in ready:
                if not self._requests.read():
                    return
                for request, given in self._requests.whole():
                    self._handle(request, given)

    def parent_lives(self) -> bool:
        return getppid() == self.parent

    @abstractmethod
    def become(self, request: dict[str, Any], talks: int, memory: int) -> None:
        """What a process that was forked for this request does.

        Args:
            talks, memory: descriptors of its socket to the driver, and of what it is given.
        """

    def end_children(self) -> None:
        """Kills all that was forked from here, and what these have forked."""
        self._end_orphans(keep=set())

    def _handle(self, request: dict[str, Any], given: list[int]) -> None:
        preload(request.get("load", []))
        if "id" in request:
            self._fork(request, given)
        for pid, belongs_to in self._forked.items():
            if belongs_to == request.get("end"):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
        self.dismissed = self.dismissed or "dismissed" in request

    def _fork(self, request: dict[str, Any], given: list[int]) -> None:
        own = getpid()
        try:
            pid = fork()
        except OSError as error:
            self.send({"id": request["id"], "error": str(error)})
        else:
            if pid == 0:
                self._go_on_as(request, given, own)
            self._forked[pid] = request["of"]
            self.send({"id": request["id"], "pid": pid})
        for descriptor in given:
            os.close(descriptor)

    def _go_on_as(self, request: dict[str, Any], given: list[int], parent: int) -> None:
        """The rest of a forked process; its output goes to the second descriptor."""
        code = 1
        try:
            die_with(parent)
            os.setsid()  # a candidate that signals its group signals itself
            self._requests.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._wake)
            os.close(self._poke)
            talks, log, memory = given
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            self.become(request, talks, memory)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # no interpreter teardown: gloo's aborts now and then

    def _reap(self) -> None:
        """Tells the driver of processes that have ended, and ends what they leave."""
        ended = False
        with contextlib.suppress(ChildProcessError):
            while (found := waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if self._forked.pop(pid, None) is not None:
                    ended = True
                    with contextlib.suppress(OSError):
                        killpg(pid, signal.SIGKILL)  # each leads a group of its own
                    self.send({"dead": pid, "status": os.waitstatus_to_exitcode(status)})
        if ended:
            self._end_orphans(keep=set(self._forked) | self._own)

    def _end_orphans(self, keep: set[int]) -> None:
        """Kills children that are not ours: of hosts that have ended, and theirs in turn."""
        for _ in range(ROUNDS):
            orphans = set(children()) - keep
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(OSError):
                    waitpid(pid, 0)

    def send(self, message: dict[str, Any]) -> None:
        """Tells the driver, where it is still there."""
        with contextlib.suppress(OSError):
            self.control.sendall(dumps(message).encode() + b"\n")


def preload(modules: list[str]) -> None:
    """What every rank needs is imported before the first fork; optional parts may be missing, and
    one that fails tells so where a rank imports it."""
    for name in modules:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)
