"""The driver's side of an engine: starts ranks, gives them cases, collects evidence, recovers.

A rank that raises, hangs, dies, or disagrees about the next collective is evidence, not an
error of the run: `run` always returns one outcome a rank, and the next `run` finds a working
pool, if need be a new one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from tpcheck import engines
from tpcheck.comms.board import Board
from tpcheck.engines.outcomes import Collection
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.verdict import Mismatch

if TYPE_CHECKING:
    from tpcheck.protocol.messages import RankReport, Work

START_LIMIT = 120.0
PARTS_LIMIT = 180.0
INSIDE = "TPCHECK_INSIDE_A_RANK"


@dataclass
class Host:
    """One process that hosts some of the ranks."""

    index: int
    ranks: list[int]
    connection: Connection
    pid: int
    log: Path
    parts: set[str] = field(default_factory=set)


class Engine:
    """Warm ranks. A context manager; `close()` leaves no process behind.

    Args:
        kind: `gloo`, `nccl` or `threads`.
        ranks: the size of the world, an upper limit on every case's mesh.
        time_limit: seconds that one case may take on the ranks.
        preload: modules that the zygote imports once for all ranks, where installed.
    """

    def __init__(
        self,
        kind: str = "gloo",
        ranks: int = 4,
        *,
        time_limit: float = 30.0,
        preload: Iterable[str] = (),
    ) -> None:
        if os.environ.get(INSIDE):
            raise EngineUnavailable(
                "an engine can't be started inside a rank: a rank imported the file that calls "
                "verify(); put that call under `if __name__ == '__main__':`"
            )
        if not time_limit > 0:
            raise InvalidArgument(f"time_limit={time_limit:g}: give a positive number of seconds")
        self.kind = engines.require(kind, ranks)
        self.ranks, self.time_limit = ranks, time_limit
        self.preload = sorted(preload)
        self.trusted: bool | None = None  # whether the canary was found on it; None: not tried
        self.epoch = 0
        self.starts = 0
        self.hosts: list[Host] = []
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._inbox: list[dict[str, Any]] = []
        self._partial = b""
        self._statuses: dict[int, int] = {}
        self.folder = Path()
        self.board: Board | None = None
        self.warm_up()

    @property
    def name(self) -> str:
        return self.kind.name

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- life and death

    def warm_up(self) -> None:
        """Starts loading torch in the zygote, without waiting for it."""
        if self._zygote is not None and self._zygote.poll() is None:
            return
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="tpcheck-", dir=shared))
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment[INSIDE] = "1"
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # no port is opened beyond loopback
        log = (self.folder / "zygote.log").open("wb")
        imports = json.dumps({"path": sys.path, "preload": self.preload})
        arguments = [str(theirs.fileno()), str(os.getpid()), str(self.folder), imports]
        self._zygote = subprocess.Popen(
            # -P: a file of the user's called like one of the standard library must not win
            [sys.executable, "-P", "-m", "tpcheck.ranks.zygote", *arguments],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        log.close()
        theirs.close()
        self._control = mine

    def _request(self, message: dict[str, Any], *fds: int) -> None:
        """Sends the zygote one request; its answer must be read before the next one."""
        assert self._control is not None
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError:
            log = (self.folder / "zygote.log").read_text(errors="replace").strip()
            raise EngineUnavailable(
                f"engine {self.name!r} could not start: {log[-300:] or 'its zygote is gone'}"
            ) from None

    def start(self) -> None:
        """Forks the hosts and waits until they have met; does nothing when they are up."""
        if self.hosts:
            return
        self.warm_up()
        self.starts += 1
        board = self.folder / f"board{self.starts}"
        self.board = Board(board, self.ranks, create=True)
        threads = self.kind.name == "threads"
        groups = [list(range(self.ranks))] if threads else [[r] for r in range(self.ranks)]
        for index, ranks in enumerate(groups):
            self.hosts.append(self._fork(index, ranks, board))
        deadline = time.monotonic() + START_LIMIT
        for host in self.hosts:
            self._expect(host, "ready", deadline, "start")

    def _fork(self, index: int, ranks: list[int], board: Path) -> Host:
        mine, theirs = socket.socketpair()
        log = self.folder / f"host{index}.log"
        request = {
            "host": index,
            "ranks": ranks,
            "size": self.ranks,
            "engine": self.name,
            "board": str(board),
            "store": str(self.folder / f"store{self.starts}"),
            "log": str(log),
            "cpu": self._cpu(index),
            "load": _parts_of_torch(),
        }
        self._request(request, theirs.fileno())
        theirs.close()
        deadline = time.monotonic() + START_LIMIT
        answer = self._answer(lambda m: m.get("host") == index, deadline)
        if answer is None:
            raise EngineUnavailable(f"engine {self.name!r}: host {index} did not start")
        return Host(index, ranks, Connection(mine.detach()), answer["pid"], log)

    def _cpu(self, index: int) -> int | None:
        """Ranks are pinned round-robin: it halves the time of small collectives. Several runs
        side by side each start at another core."""
        if not hasattr(os, "sched_getaffinity") or self.name == "threads":
            return None
        allowed = sorted(os.sched_getaffinity(0))
        return allowed[(index + os.getpid()) % len(allowed)]

    def _answer(self, wanted: Any, deadline: float) -> dict[str, Any] | None:
        """The zygote's next message that `wanted` accepts; deaths are noted on the way."""
        while True:
            for message in list(self._inbox):
                if wanted(message):
                    self._inbox.remove(message)
                    return message
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._read_control(remaining):
                return None

    def _read_control(self, timeout: float) -> bool:
        assert self._control is not None
        ready, _, _ = select.select([self._control], [], [], timeout)
        if not ready:
            return False
        data = self._control.recv(1 << 16)
        if not data:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for message in map(json.loads, lines):
            if "dead" in message:
                self._statuses[message["dead"]] = message["status"]
            else:
                self._inbox.append(message)
        return True

    def kill(self) -> None:
        """Ends all ranks at once; the next case starts new ones."""
        for host in self.hosts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(host.pid, signal.SIGKILL)
            host.connection.close()
        self.hosts = []

    def close(self) -> None:
        """Ends ranks and zygote and removes the run's folder."""
        self.kill()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._zygote is not None:
            try:
                self._zygote.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- cases

    def _expect(self, host: Host, kind: str, deadline: float, doing: str) -> Any:
        """The host's next message of this kind."""
        while True:
            if not host.connection.poll(max(0.0, deadline - time.monotonic())):
                self.kill()
                raise EngineUnavailable(
                    f"engine {self.name!r}: rank {host.ranks[0]} hung ({doing})"
                )
            try:
                message = cloudpickle.loads(host.connection.recv_bytes())
            except (EOFError, OSError):
                tail = self.log_tail(host)
                self.kill()
                raise EngineUnavailable(
                    f"engine {self.name!r}: rank {host.ranks[0]} died ({doing}): {tail[-300:]}"
                ) from None
            if message[0] == kind:
                return message

    def teach(self, key: str, blob: bytes, files: dict[str, str]) -> None:
        """Gives every rank the candidate `key` (cloudpickled), once."""
        self.start()
        new = [host for host in self.hosts if key not in host.parts]
        for host in new:
            message = ("parts", key, blob, list(sys.path), files)
            host.connection.send_bytes(cloudpickle.dumps(message))
        deadline = time.monotonic() + PARTS_LIMIT
        errors = [self._expect(h, "parts", deadline, "importing the candidate")[2] for h in new]
        for error in filter(None, errors):
            raise InvalidArgument(f"the ranks can't import the candidate: {error}")
        for host in new:
            host.parts.add(key)

    def run(self, key: str, work: Work) -> list[RankReport | Mismatch]:
        """Runs one case; returns one outcome a rank, whatever happens to the ranks.

        Raises:
            EngineUnavailable: the case needs more ranks than the engine has.
        """
        size = work.case.world_size
        if size > self.ranks:
            raise EngineUnavailable(
                f"the case needs {size} ranks ({work.case.describe()}) and the engine has "
                f"{self.ranks}; give --ranks {size} or a smaller mesh"
            )
        hosts = [h for h in self.hosts if h.ranks[0] < size]
        message = cloudpickle.dumps(("case", key, work))
        for host in hosts:
            with contextlib.suppress(OSError):
                host.connection.send_bytes(message)
        return Collection(self, hosts, work).outcomes()

    def call(self, function: Callable[..., Any], *args: Any, mesh: Mapping[str, int]) -> list[Any]:
        """`function(mesh, *args)` on every rank of `mesh`, outside any case; one answer a rank.

        Raises:
            EngineUnavailable: a rank raised, died, or took longer than `time_limit`.
        """
        self.start()
        size = math.prod(mesh.values())
        message = ("call", function, args, dict(mesh), self.next_epoch())
        hosts = [host for host in self.hosts if host.ranks[0] < size]
        for host in hosts:
            host.connection.send_bytes(cloudpickle.dumps(message))
        deadline = time.monotonic() + self.time_limit
        answers: dict[int, Any] = {}
        for host in hosts:
            for _ in [rank for rank in host.ranks if rank < size]:
                _, rank, value, error = self._expect(host, "answer", deadline, "a call")
                if error:
                    self.kill()
                    raise EngineUnavailable(f"engine {self.name!r}: rank {rank} raised:\n{error}")
                answers[rank] = value
        return [answers[rank] for rank in range(size)]

    def next_epoch(self) -> int:
        """A number for a case, never used before in this engine."""
        self.epoch += 1
        return self.epoch

    def log_tail(self, host: Host) -> str:
        """The end of what a host printed."""
        with contextlib.suppress(OSError):
            return host.log.read_text(errors="replace")[-4000:].strip()
        return ""

    def stacks(self, host: Host) -> str:
        """The Python stacks of a host's threads, by its own faulthandler."""
        before = host.log.stat().st_size if host.log.exists() else 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(host.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            text = host.log.read_bytes()[before:].decode(errors="replace")
            if "(most recent call first)" in text and text.endswith("\n"):
                return text.strip()
            time.sleep(0.02)
        return ""

    def status_of(self, host: Host) -> str:
        """How a dead host ended: `killed by SIGKILL`, `exit code 1`."""
        deadline = time.monotonic() + 2.0
        while host.pid not in self._statuses and time.monotonic() < deadline:
            self._read_control(0.1)
        status = self._statuses.get(host.pid)
        if status is None:
            return "gone"
        if status >= 0:
            return f"exit code {status}"
        return f"killed by {signal.Signals(-status).name}"


def _parts_of_torch() -> list[str]:
    """Torch's packages that the driver has loaded, since a candidate imports them: the zygote loads
    them once, where each new rank would take a second for it."""
    loaded = [(name, module) for name, module in list(sys.modules.items()) if name.count(".") < 3]
    return [name for name, module in loaded if name[:6] == "torch." and hasattr(module, "__path__")]
