"""The zygote as the driver sees it: what ranks are forked from, and how each of them ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tpcheck.engines.folder import RunFolder
from tpcheck.engines.hosts import Host
from tpcheck.engines.logs import Log
from tpcheck.errors import EngineUnavailable
from tpcheck.process.loaded import parts_of_torch
from tpcheck.protocol.leftovers import INSIDE, end_marked

#: Seconds in which ranks must be up and have met: importing torch takes 2 s on an idle machine and
#: a minute on one that thrashes. Ranks that never start are reported after this long.
START_LIMIT = 120.0
#: Seconds in which the zygote says how a host ended; after them it is said to be gone.
STATUS_LIMIT = 2.0
#: Seconds that the zygote has to end by itself once its driver has closed the socket.
CLOSE_LIMIT = 5.0
#: Bytes of a zygote's own output that are read for a message.
_SAID = 4096


class ZygoteProcess:
    """Starts a zygote (`ranks/zygote.py`), which loads torch, without waiting for it.

    Args:
        engine: the engine's name, for messages.
        preload: modules that it imports once for all ranks.
        folder: the run's, for the zygote's own log, and for it to remove should the driver die.
    """

    def __init__(self, engine: str, preload: Sequence[str], folder: RunFolder) -> None:
        self.engine, self.folder = engine, folder
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control.settimeout(START_LIMIT)
        self._inbox: list[dict[str, Any]] = []
        self._partial = b""
        self._statuses: dict[int, int] = {}
        self._forked = False  # whether it has been asked for a host
        self._log = folder.path / "zygote.log"
        imports = json.dumps({"path": sys.path, "preload": list(preload)})
        arguments = [str(theirs.fileno()), str(os.getpid()), str(folder.path), imports]
        with self._log.open("wb") as log, theirs:
            self._process = subprocess.Popen(
                # -P: a file of the user's called like one of the standard library must not win
                [sys.executable, "-P", "-m", "tpcheck.ranks.zygote", *arguments],
                pass_fds=[theirs.fileno()],
                env=_environment(folder.mark),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                # what ends the driver's whole group leaves it: it cleans up after the driver
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, index: int, ranks: list[int], request: dict[str, Any], board: int) -> Host:
        """A new host process for `ranks`; `request` says of what world (`ranks/host.py`).

        Args:
            board: the descriptor of its memory.

        Raises:
            EngineUnavailable: the zygote is gone, or does not answer.
        """
        mine, theirs = socket.socketpair()
        reads, writes = os.pipe()
        log = Log(reads)
        what = {
            "host": index,
            "ranks": ranks,
            "load": [*parts_of_torch(), *request.get("load", ())],
        }
        self._forked = True
        try:
            with theirs:
                self._request({**request, **what}, theirs.fileno(), writes, board)
            answer = self._answer(index, time.monotonic() + START_LIMIT)
            if answer is None or "pid" not in answer:
                why = answer["error"] if answer else self._said() or "its zygote does not answer"
                raise EngineUnavailable(
                    f"engine {self.engine!r}: host {index} did not start: {why}"
                )
        except EngineUnavailable:
            mine.close()
            log.close()
            raise
        finally:
            os.close(writes)
        return Host(index, ranks, mine, answer["pid"], log)

    def status_of(self, host: Host) -> int | None:
        """The exit code of a dead host, or minus the signal that killed it; None where the zygote
        does not say."""
        self._wake()
        deadline = time.monotonic() + STATUS_LIMIT
        while host.pid not in self._statuses and time.monotonic() < deadline and self.alive:
            self._read(0.1)
        return self._statuses.get(host.pid)

    def close(self) -> None:
        """Ends the process, and whatever candidates have started from there."""
        with contextlib.suppress(EngineUnavailable):
            self._request({"dismissed": True})
        self._control.close()
        if not self._forked:
            self._process.kill()  # it may load torch for seconds, for nobody
        try:
            self._process.wait(timeout=CLOSE_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end_marked(self.folder.mark)

    def _wake(self) -> None:
        """Lets it go on where a candidate, whose parent it is, has stopped it."""
        if self.alive:
            self._process.send_signal(signal.SIGCONT)

    def _request(self, message: dict[str, Any], *fds: int) -> None:
        """Sends one request; its answer must be read before the next one."""
        self._wake()
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError:
            why = self._said() or "its zygote is gone"
            raise EngineUnavailable(f"engine {self.engine!r} could not start: {why}") from None

    def _said(self) -> str:
        """The end of what it wrote to its log."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _SAID))
            return log.read(_SAID).decode(errors="replace").strip()[-300:]
        return ""

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
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            return False
        if not data:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for told in map(json.loads, lines):
            if "dead" in told:
                self._statuses[told["dead"]] = told["status"]
            else:
                self._inbox.append(told)
        return True


def _environment(mark: str) -> dict[str, str]:
    """Of ranks: one thread each, no port beyond loopback, and the mark of their run."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {INSIDE: mark, "GLOO_SOCKET_IFNAME": "lo"}
