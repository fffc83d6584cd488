"""The zygote as the driver sees it: what ranks are forked from, and how each of them ended."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tpcheck.engines.hosts import Host
from tpcheck.errors import EngineUnavailable

#: Seconds in which ranks must be up and have met: importing torch takes 2 s on an idle machine and
#: a minute on one that thrashes. Ranks that never start are reported after this long.
START_LIMIT = 120.0
#: Seconds in which the zygote says how a host ended; after them it is said to be gone.
STATUS_LIMIT = 2.0
#: Seconds that the zygote has to end by itself once its driver has closed the socket.
CLOSE_LIMIT = 5.0
INSIDE = "TPCHECK_INSIDE_A_RANK"


class ZygoteProcess:
    """Starts a zygote (`ranks/zygote.py`), which loads torch, without waiting for it.

    Args:
        engine: the engine's name, for messages.
        preload: modules that it imports once for all ranks.
    """

    def __init__(self, engine: str, preload: Sequence[str]) -> None:
        self.engine = engine
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="tpcheck-", dir=shared))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._inbox: list[dict[str, Any]] = []
        self._partial = b""
        self._statuses: dict[int, int] = {}
        self._forked = False  # whether it has been asked for a host
        imports = json.dumps({"path": sys.path, "preload": list(preload)})
        arguments = [str(theirs.fileno()), str(os.getpid()), str(self.folder), imports]
        with (self.folder / "zygote.log").open("wb") as log, theirs:
            self._process = subprocess.Popen(
                # -P: a file of the user's called like one of the standard library must not win
                [sys.executable, "-P", "-m", "tpcheck.ranks.zygote", *arguments],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, index: int, ranks: list[int], request: dict[str, Any]) -> Host:
        """A new host process for `ranks`; `request` says of what world (`ranks/host.py`).

        Raises:
            EngineUnavailable: the zygote is gone, or does not answer.
        """
        mine, theirs = socket.socketpair()
        log = self.folder / f"host{index}.log"
        what = {"host": index, "ranks": ranks, "log": str(log), "load": _parts_of_torch()}
        self._forked = True
        with theirs:
            self._request({**request, **what}, theirs.fileno())
        answer = self._answer(index, time.monotonic() + START_LIMIT)
        if answer is None:
            raise EngineUnavailable(f"engine {self.engine!r}: host {index} did not start")
        return Host(index, ranks, Connection(mine.detach()), answer["pid"], log)

    def status_of(self, host: Host) -> int | None:
        """The exit code of a dead host, or minus the signal that killed it; None where the zygote
        does not say."""
        deadline = time.monotonic() + STATUS_LIMIT
        while host.pid not in self._statuses and time.monotonic() < deadline:
            self._read(0.1)
        return self._statuses.get(host.pid)

    def close(self) -> None:
        """Ends the process and removes the run's folder."""
        self._control.close()
        if not self._forked:
            self._process.kill()  # it may load torch for seconds, for nobody
        try:
            self._process.wait(timeout=CLOSE_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _request(self, message: dict[str, Any], *fds: int) -> None:
        """Sends one request; its answer must be read before the next one."""
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError:
            log = (self.folder / "zygote.log").read_text(errors="replace").strip()
            raise EngineUnavailable(
                f"engine {self.engine!r} could not start: {log[-300:] or 'its zygote is gone'}"
            ) from None

    def _answer(self, index: int, deadline: float) -> dict[str, Any] | None:
        """The answer about host `index`; deaths are noted on the way."""
        while True:
            for answer in list(self._inbox):
                if answer.get("host") == index:
                    self._inbox.remove(answer)
                    return answer
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._read(remaining):
                return None

    def _read(self, timeout: float) -> bool:
        """Reads what the zygote has sent; False where there is nothing, or it is gone."""
        ready, _, _ = select.select([self._control], [], [], timeout)
        if not ready:
            return False
        data = self._control.recv(1 << 16)
        if not data:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for told in map(json.loads, lines):
            if "dead" in told:
                self._statuses[told["dead"]] = told["status"]
            else:
                self._inbox.append(told)
        return True


def _environment() -> dict[str, str]:
    """Of ranks: one thread each, no port beyond loopback, and a mark that they are ranks."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {INSIDE: "1", "GLOO_SOCKET_IFNAME": "lo"}


def _parts_of_torch() -> list[str]:
    """Torch's packages that the driver has loaded, since a candidate imports them: the zygote loads
    them once, where each new rank would take a second for it."""
    loaded = [(name, module) for name, module in list(sys.modules.items()) if name.count(".") < 3]
    return [name for name, module in loaded if name[:6] == "torch." and hasattr(module, "__path__")]
