"""Zygotes that need not be started: forked from a process that has loaded torch already.

`Spare` is one, of a command that is such a process itself, before it has done anything. `Nursery`
is where those of an engine in pytest's own process come from, and those of processes that such a
command or pytest's own has forked (the workers of `--jobs`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests import ROOT
from tpcheck.process.lineage import die_with, take_orphans
from tpcheck.process.loaded import parts_of_torch
from tpcheck.protocol.leftovers import INSIDE

#: What a nursery has, whatever the test has that it is started in.
ALIKE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}

#: Bytes of a message, at most: the environment and the paths that a zygote is given.
_MOST = 1 << 20
#: Of a process's number.
_NUMBER = 32

#: (arguments, environment, log) → the number of the process that is the zygote now.
Become = Callable[[list[str], Mapping[str, str], int], int]


def install(become: Become, nursery: Callable[[], socket.socket | None], *, once: bool) -> None:
    """Has `ZygoteProcess` take what `become` makes for the process that it starts, in this process,
    whose child that is; and what a nursery has forked, in processes that this one forks.

    Args:
        nursery: the socket over which it is asked; None where there is none.
        once: only the first one.
    """
    owner, left = os.getpid(), [1]

    class Popen(subprocess.Popen[bytes]):
        _ended: int | None = None  # of no child: readable once it has ended

        def _execute_child(self, args: list[str], *how: Any) -> None:
            env, pipes, own = how[5], how[9:15], os.getpid() == owner
            if "tpcheck.ranks.zygote" not in args or _anew:
                return super()._execute_child(args, *how)
            if own and left:
                if once:
                    left.clear()
                self.pid = become(args[-4:], env, pipes[-1])
            elif (asked := nursery()) is not None:
                self.pid = _forked(asked, args[-4:], env, pipes[-1], kept=True)
                self._ended = os.pidfd_open(self.pid)
            else:
                return super()._execute_child(args, *how)
            self._child_created = True
            return self._close_pipe_fds(*pipes)

        def _internal_poll(self, *how: Any, **more: Any) -> int | None:
            if self._ended is None:
                return super()._internal_poll(*how, **more)
            if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
                self.returncode = 0
            return self.returncode

        def _try_wait(self, flags: int) -> tuple[int, int]:
            if self._ended is None:
                return super()._try_wait(flags)
            patience = 0 if flags & os.WNOHANG else None
            return (self.pid if select.select([self._ended], [], [], patience)[0] else 0), 0

        def __del__(self, *how: Any, **more: Any) -> None:
            if self._ended is not None:
                os.close(self._ended)
                self._ended, self.returncode = None, self.returncode or 0
            super().__del__(*how, **more)

    patch("tpcheck.engines.zygote_process.subprocess.Popen", Popen).start()


_anew: list[bool] = []


@contextlib.contextmanager
def started_anew() -> Iterator[None]:
    """In the block zygotes are started as users' are: with nothing loaded that they need not."""
    _anew.append(True)
    try:
        yield
    finally:
        _anew.pop()


class Spare:
    """A process that becomes the zygote that is started first; it ends where none is."""

    def __init__(self) -> None:
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                self._mine.close()
                if (asked := _heard(theirs)) is not None:
                    _become(asked[0], *asked[1])
            os._exit(1)
        theirs.close()

    def install(self, nursery: socket.socket | None) -> None:
        """Has it taken for the process that `ZygoteProcess` starts first; after that, and in what
        this process forks, one of a nursery's."""
        install(self._told, lambda: nursery, once=True)

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

    @property
    def asked(self) -> socket.socket | None:
        """The socket over which it is asked, also by processes that are forked from here; None
        before it was started."""
        return None if self._process is None else self._mine

    def started(self) -> socket.socket:
        if self._process is None:
            self._process = self._started()
            self._theirs.close()  # nobody waits for the answer of one that has died
        return self._mine

    def zygote(self, arguments: list[str], env: Mapping[str, str], log: int) -> int:
        """Its number. It is this process's child, as if it had been started here: whoever forked it
        has ended, and this process takes orphans meanwhile."""
        asked = self.started()
        take_orphans()
        try:
            return _forked(asked, arguments, env, log, kept=False)
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
            env={**os.environ, **ALIKE},
        )


def _forked(
    nursery: socket.socket, arguments: list[str], env: Mapping[str, str], log: int, *, kept: bool
) -> int:
    """The number of a zygote that a nursery has forked.

    Args:
        kept: it is the nursery's own child; else whoever has forked it has ended by then.
    """
    reads, writes = os.pipe()  # of its own: several processes may ask
    _tell(nursery, arguments, env, log, writes, kept=kept)
    os.close(writes)
    with open(reads, "rb", buffering=0) as told:
        return int(told.read(_NUMBER))


def _tell(
    to: socket.socket, arguments: list[str], env: Mapping[str, str], *more: int, kept: bool = False
) -> None:
    """`more`: descriptors beside the one of its control socket: its log; who is to be told."""
    given = {"arguments": arguments, "env": dict(env), "folder": os.getcwd(), "kept": kept}
    given["parts"] = parts_of_torch()
    message = json.dumps(given).encode()
    socket.send_fds(to, [message], [int(arguments[0]), *more])


def _heard(asks: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What a zygote is to be told, and the descriptors of `_tell`."""
    message, descriptors, _, _ = socket.recv_fds(asks, _MOST, 3)
    return (json.loads(message), descriptors) if message else None


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
    parent = os.getppid() if given["kept"] else int(driver)
    Zygote(control, parent, folder).serve(imports)


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
    from tpcheck.ranks.forker import preload
    from tpcheck.ranks.zygote import FIRST_USED, OF_CHECKS

    gc.disable()
    preload(["torch.distributed.tensor", "tpcheck.ranks.template", *OF_CHECKS, *FIRST_USED])
    while (asked := _heard(asks)) is not None:
        with contextlib.suppress(OSError, ValueError):  # whoever asked has ended meanwhile
            _fork(*asked)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those that it kept, and that have ended
                pass


def _fork(given: dict[str, Any], descriptors: list[int]) -> None:
    """A nursery's zygote, whose number whoever asked is told."""
    from tpcheck.process.guard import read_ahead
    from tpcheck.ranks.forker import preload

    control, log, told = descriptors
    try:
        preload(given["parts"])  # which each zygote would be told to load, a second of each
        read_ahead()
        reads, writes = os.pipe()
        pid = between = os.fork()
        if not pid and not given["kept"] and (own := os.fork()):
            os.write(writes, str(own).encode())
            os._exit(0)
        if not pid:
            gc.enable()
            with contextlib.suppress(BaseException):
                _become(given, control, log)
            os._exit(1)
        os.close(writes)
        with open(reads, "rb") as orphan:
            number = orphan.read()  # to its end: it has become what was asked for
        if not given["kept"]:
            os.waitpid(between, 0)  # whoever asks takes orphans until it is answered
            pid = int(number)
        os.write(told, str(pid).encode())
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    die_with(os.getppid())
    _serve(socket.socket(fileno=int(sys.argv[1])))
