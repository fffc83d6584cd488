"""Zygotes that need not be started: forked from a process that has loaded torch already.

`Spare` is one, of a command that is such a process itself, before it has done anything. `Nursery`
is where those of an engine in pytest's own process come from.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests import ROOT
from tpcheck.process.lineage import die_with, take_orphans
from tpcheck.protocol.leftovers import INSIDE

#: Bytes of a message, at most: the environment and the paths that a zygote is given.
_MOST = 1 << 20

#: (arguments, environment, log) → the number of the process that is the zygote now.
Become = Callable[[list[str], Mapping[str, str], int], int]


def install(become: Become, *, once: bool) -> None:
    """Has `ZygoteProcess` take what `become` makes for the process that it starts; in this process
    alone, whose child that is.

    Args:
        once: only the first one.
    """
    owner, left = os.getpid(), [1]

    class Popen(subprocess.Popen[bytes]):
        def _execute_child(self, args: list[str], *how: Any) -> None:
            own = os.getpid() == owner and "tpcheck.ranks.zygote" in args
            if not (own and left):
                return super()._execute_child(args, *how)
            if once:
                left.clear()
            env, pipes = how[5], how[9:15]
            self.pid = become(args[-4:], env, pipes[-1])
            self._child_created = True
            return self._close_pipe_fds(*pipes)

    patch("tpcheck.engines.zygote_process.subprocess.Popen", Popen).start()


class Spare:
    """A process that becomes the zygote that is started first; it ends where none is."""

    def __init__(self) -> None:
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                self._mine.close()
                if (asked := _heard(theirs)) is not None:
                    _become(*asked)
            os._exit(1)
        theirs.close()

    def install(self) -> None:
        """Has it taken for the process that `ZygoteProcess` starts first."""
        install(self._told, once=True)

    def _told(self, arguments: list[str], env: Mapping[str, str], log: int) -> int:
        _tell(self._mine, arguments, env, log)
        self._mine.close()
        return self.pid


class Nursery:
    """A process that has loaded what every zygote loads, and forks one as often as it is asked. It
    is started with the first."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None

    def zygote(self, arguments: list[str], env: Mapping[str, str], log: int) -> int:
        """Its number. It is this process's child, as if it had been started here: whoever forked it
        has ended, and this process takes orphans meanwhile."""
        if self._process is None:
            self._process = self._started()
        take_orphans()
        try:
            _tell(self._mine, arguments, env, log)
            return int(self._mine.recv(_MOST))
        finally:
            take_orphans(still=False)

    def close(self) -> None:
        self._mine.close()
        self._theirs.close()
        if self._process is not None:
            self._process.kill()  # what pytest has forked may hold its socket
            self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spare", str(self._theirs.fileno())],
            pass_fds=[self._theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )


def _tell(to: socket.socket, arguments: list[str], env: Mapping[str, str], log: int) -> None:
    given = {"arguments": arguments, "env": dict(env), "folder": os.getcwd()}
    message = json.dumps(given).encode()
    socket.send_fds(to, [message], [int(arguments[0]), log])


def _heard(asks: socket.socket) -> tuple[dict[str, Any], int, int] | None:
    """What a zygote is to be told, and its descriptors: of its control socket and its log."""
    message, descriptors, _, _ = socket.recv_fds(asks, _MOST, 2)
    return (json.loads(message), *descriptors) if message else None


def _become(given: dict[str, Any], control: int, log: int) -> None:
    """In a forked process: is the zygote that was asked for. What it closes tells that it is."""
    os.environ.clear()
    os.environ.update(given["env"])
    _mark(given["env"][INSIDE])
    kept = sorted((control, log))
    os.closerange(3, kept[0])
    os.closerange(kept[0] + 1, kept[1])
    os.closerange(kept[1] + 1, os.sysconf("SC_OPEN_MAX"))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor, own in ((nowhere, 0), (nowhere, 1), (log, 2)):
        os.dup2(descriptor, own)
    for descriptor in (nowhere, log):
        os.close(descriptor)
    os.setsid()
    os.chdir(given["folder"])
    _, driver, folder, imports = given["arguments"]
    from tpcheck.ranks.zygote import Zygote

    os.set_inheritable(control, True)
    Zygote(control, int(driver), folder).serve(imports)


def _mark(mark: str) -> None:
    """Has the system show the mark of a run in the environment that this process began with, as it
    does of one that was started: what a run leaves behind is found by that. Nothing else reads
    those bytes: variables that are set again are elsewhere."""
    numbers = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begins, ends = int(numbers[47]), int(numbers[48])  # proc(5): env_start, env_end
    text = f"{INSIDE}={mark}\0".encode()
    assert len(text) < ends - begins
    ctypes.memmove(begins, text.ljust(ends - begins, b"\0"), ends - begins)


def _serve(asks: socket.socket) -> None:
    """A nursery: forks zygotes until nobody asks any more."""
    import gc

    from tpcheck.ranks.forker import preload
    from tpcheck.ranks.zygote import FIRST_USED, OF_CHECKS

    gc.disable()
    preload(["torch.distributed.tensor", "tpcheck.ranks.template", *OF_CHECKS, *FIRST_USED])
    while (asked := _heard(asks)) is not None:
        reads, writes = os.pipe()
        between = os.fork()
        if not between:
            own = os.fork()
            if own:
                os.write(writes, str(own).encode())
                os._exit(0)
            os.close(reads)
            gc.enable()
            with contextlib.suppress(BaseException):
                _become(*asked)
            os._exit(1)
        os.close(writes)
        os.waitpid(between, 0)
        with open(reads, "rb") as told:
            asks.send(told.read())
        for descriptor in asked[1:]:
            os.close(descriptor)


if __name__ == "__main__":
    die_with(os.getppid())
    _serve(socket.socket(fileno=int(sys.argv[1])))
