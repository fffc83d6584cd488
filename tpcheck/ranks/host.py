"""The rank side of an engine: a process that hosts one rank, or all ranks as threads.

Messages from the driver: ("parts", key, blob, paths, files), ("case", key, work), ("stop",),
("call", function, args, mesh, epoch).
Messages to it: ("ready", …), ("parts", key, error | None), ("outcome", epoch, rank, outcome),
("answer", rank, value, error | None).
"""

from __future__ import annotations

import faulthandler
import importlib.abc
import importlib.util
import math
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import cloudpickle
import torch

from tpcheck.comms.board import Board
from tpcheck.comms.trace import Recorder, watch_reduce_ops
from tpcheck.protocol.messages import Work
from tpcheck.ranks import run as rank_side
from tpcheck.ranks.worlds import ProcessWorlds, ThreadWorlds, set_recorder
from tpcheck.verdict import Mismatch


class FileFinder(importlib.abc.MetaPathFinder):
    """Finds by file the driver's modules that no path leads to: a user's check file, a test
    module that pytest imported by path. Consulted last."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        file = self.files.get(name)
        return importlib.util.spec_from_file_location(name, file) if file else None


class Host:
    """One host process."""

    def __init__(self, connection: Connection, request: dict[str, Any]) -> None:
        self.connection = connection
        self.ranks: list[int] = request["ranks"]
        self.engine: str = request["engine"]
        self.board = Board(request["board"], request["size"])
        self.parts: dict[str, Any] = {}
        self.finder = FileFinder()
        sys.meta_path.append(self.finder)
        self._lock = threading.Lock()
        self.worlds: dict[int, Any] = {}
        if self.engine == "threads":
            ThreadWorlds.install()
            self.worlds = {rank: ThreadWorlds(rank) for rank in self.ranks}
            # one thread a rank for good: torch registers groups by thread
            self.threads = {rank: ThreadPoolExecutor(1, f"rank{rank}") for rank in self.ranks}
        else:
            watch_reduce_ops()
            for rank in self.ranks:
                self.worlds[rank] = ProcessWorlds(
                    self.engine, rank, request["size"], request["store"]
                )

    def send(self, *message: Any) -> None:
        with self._lock:
            self.connection.send_bytes(cloudpickle.dumps(message))

    def serve(self) -> None:
        """Answers the driver until it says stop or is gone."""
        self.send("ready", os.getpid())
        while True:
            try:
                message = cloudpickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                return
            if message[0] == "stop":
                return
            if message[0] == "parts":
                self.send("parts", message[1], self._learn(*message[1:]))
            elif message[0] == "call":
                self._call(*message[1:])
            else:
                self._case(*message[1:])

    def _learn(self, key: str, blob: bytes, path: list[str], files: dict[str, str]) -> str | None:
        """Unpickles a candidate and its spec's callables; an error becomes a line."""
        sys.path[:] = path
        self.finder.files.update(files)
        try:
            self.parts[key] = cloudpickle.loads(blob)
        except Exception as error:
            traceback.print_exc()
            return f"{type(error).__name__}: {error}".split("\n")[0]
        return None

    def _case(self, key: str, work: Work) -> None:
        ranks = [rank for rank in self.ranks if rank < work.case.world_size]
        if self.engine != "threads":
            for rank in ranks:
                self._rank(rank, key, work)
            return
        futures = [self.threads[rank].submit(self._rank, rank, key, work) for rank in ranks]
        for future in futures:
            future.result()

    def _call(self, function: Any, args: Any, mesh: dict[str, int], epoch: int) -> None:
        """Answers `Engine.call`: the function's value, or the traceback of what it raised."""

        def one(rank: int) -> None:
            try:
                value, error = function(self.worlds[rank].enter(mesh, epoch), *args), None
            except Exception:
                value, error = None, traceback.format_exc()
            self.send("answer", rank, value, error)

        ranks = [rank for rank in self.ranks if rank < math.prod(mesh.values())]
        if self.engine != "threads":
            for rank in ranks:
                one(rank)
            return
        for future in [self.threads[rank].submit(one, rank) for rank in ranks]:
            future.result()

    def _rank(self, rank: int, key: str, work: Work) -> None:
        recorder = Recorder(
            rank, board=self.board, epoch=work.epoch, dispatch=self.engine != "threads"
        )
        self.board.begin(rank, work.epoch)
        outcome: Any
        try:
            mesh = self.worlds[rank].enter(dict(work.case.mesh), work.epoch)
            if self.engine == "threads":
                set_recorder(recorder)
            outcome = rank_side.run_case(work, self.parts[key], mesh, recorder)
        except BaseException as error:
            stack = "".join(traceback.format_exception(error))
            detail = {"type": type(error).__name__, "reason": str(error)[:400], "stack": stack}
            detail["phase"] = recorder.phase
            outcome = Mismatch("exception", "exception", rank, detail=detail)
        self.board.done(rank)
        self.send("outcome", work.epoch, rank, outcome)


def serve_host(fd: int, request: dict[str, Any]) -> None:
    """Entry of a forked host process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # torch's own poison: whatever is allocated and not written reads as NaN (or the largest int).
    # Set directly: `torch.use_deterministic_algorithms` loads the compiler, a second a rank.
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    if request["cpu"] is not None:
        os.sched_setaffinity(0, [request["cpu"]])
    Host(Connection(fd), request).serve()
