"""The process that ranks are forked from: torch is loaded once, each rank costs a fork.

The driver starts it by exec, so nothing of the driver's threads or state is inherited, and sends
it descriptors for each host process to fork. When the driver goes, by whatever signal, its end of
the control socket closes (and the parent pid changes): the zygote kills every process that it
forked and every one that these forked, removes the run's folder and exits.

What a candidate forks may outlive its host. It becomes the zygote's child then (it is a subreaper),
and is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from tpcheck.process.children import children
from tpcheck.protocol.leftovers import INSIDE, end_marked, remove_unheld

#: Seconds between two looks at whether the driver lives, while there is nothing else to do.
LOOK = 0.5
#: Seconds in which a driver that dies lets go of the run's folder, after its socket has closed.
LET_GO = 2.0
#: How often orphans are looked for: each that is killed may leave children of its own.
ROUNDS = 50


class Zygote:
    """Forks hosts on request until the driver is gone."""

    def __init__(self, fd: int, driver: int, folder: str) -> None:
        self.control, self.driver, self.folder = socket.socket(fileno=fd), driver, Path(folder)
        self.hosts: set[int] = set()
        self._own: set[int] = set()  # children before the first host: of modules, when imported
        self._dismissed = False  # by a driver that lives, and removes its folder itself
        self._wake, self._poke = os.pipe()
        os.set_blocking(self._poke, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
        signal.set_wakeup_fd(self._poke, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        _prctl(_SET_CHILD_SUBREAPER, 1)

    def serve(self, imports: str) -> None:
        """Loads what ranks need, then answers."""
        try:
            self._load(json.loads(imports))
            self._own = set(children())
            while self._driver_lives():
                descriptors = [self.control.fileno(), self._wake]
                ready, _, _ = select.select(descriptors, [], [], LOOK)
                if self._wake in ready:
                    os.read(self._wake, 512)
                self._reap()
                if self.control.fileno() in ready and not self._answer():
                    return
        finally:
            self._end()

    def _load(self, wanted: dict[str, Any]) -> None:
        """Imports; a module that takes for ever does not outlive the driver."""
        signal.signal(signal.SIGALRM, lambda *_: self._end() if not self._driver_lives() else None)
        signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)
        _preload(["torch.distributed.tensor", "tpcheck.ranks.host"])
        sys.path[:] = wanted["path"]
        _preload(wanted["preload"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _driver_lives(self) -> bool:
        return os.getppid() == self.driver

    def _answer(self) -> bool:
        """Handles one request; False when the driver has gone, or needs no more."""
        data, fds, _, _ = socket.recv_fds(self.control, 1 << 20, 3)
        if not data:
            return False
        request: dict[str, Any] = json.loads(data)
        if "host" not in request:
            self._dismissed = True
            return False
        _preload(request["load"])
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"host": request["host"], "error": str(error)})
            return True
        if pid == 0:
            self.control.close()
            os.close(self._wake)
            os.close(self._poke)
            _become_host(fds, request)
        self.hosts.add(pid)
        for descriptor in fds:
            os.close(descriptor)
        self._send({"pid": pid, "host": request["host"]})
        return True

    def _reap(self) -> None:
        """Tells the driver of hosts that have ended, and ends what they leave."""
        ended = False
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if pid in self.hosts:
                    self.hosts.remove(pid)
                    ended = True
                    with contextlib.suppress(OSError):
                        os.killpg(pid, signal.SIGKILL)  # a host leads a group of its own
                    self._send({"dead": pid, "status": os.waitstatus_to_exitcode(status)})
        if ended:
            self._end_orphans(keep=self.hosts | self._own)

    def _end_orphans(self, keep: set[int]) -> None:
        """Kills children that are not ours: of hosts that have ended, and theirs in turn."""
        for _ in range(ROUNDS):
            orphans = set(children()) - keep
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, 0)

    def _end(self) -> None:
        """Kills all that was forked from here and, where the driver is dead, removes its folder."""
        self._end_orphans(keep=set())
        end_marked(os.environ[INSIDE])
        deadline = time.monotonic() + LET_GO
        with contextlib.suppress(OSError):
            while not self._dismissed and not remove_unheld(self.folder):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        os._exit(0)

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")


def _preload(modules: list[str]) -> None:
    """What every rank needs is imported before the first fork; optional parts may be missing, and
    one that fails tells so where a rank imports it."""
    for name in modules:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)


def _become_host(fds: list[int], request: dict[str, Any]) -> None:
    """The rest of a forked process: socket, log and board are the driver's, in this order."""
    code = 1
    try:
        die_with_parent()
        os.setsid()  # a candidate that signals its group signals itself
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection, log, board = fds
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        from tpcheck.ranks.host import serve_host

        serve_host(connection, board, request)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # no interpreter teardown: gloo's aborts now and then


_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def die_with_parent() -> None:
    """The kernel kills this process when the one that forked it ends, however that ends."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    Zygote(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]).serve(sys.argv[4])
