"""The rank side of an engine: a process that hosts one rank, or all ranks as threads. Its messages
are those of `protocol.messages`."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from os import getpid
from typing import Any

import cloudpickle
import torch

from tpcheck.comms.board import Board
from tpcheck.comms.reduce_ops import watch_reduce_ops
from tpcheck.comms.trace import Recorder
from tpcheck.comms.works import watch_works
from tpcheck.plan import ignored
from tpcheck.process import garbage, guard
from tpcheck.process.aspects import Left
from tpcheck.process.guard import Guard
from tpcheck.process.loaded import parts_of_torch
from tpcheck.protocol import ends, wire
from tpcheck.protocol.messages import (
    Answered,
    Asked,
    Ended,
    Learned,
    RankReport,
    Ready,
    RunCase,
    Teach,
    Work,
)
from tpcheck.ranks import outcome as rank_side
from tpcheck.ranks import poison
from tpcheck.ranks.candidates import Candidates
from tpcheck.ranks.recorders import set_recorder
from tpcheck.ranks.worlds import ProcessWorlds, ThreadWorlds
from tpcheck.verdict import Mismatch


class Host:
    """One host process.

    Args:
        board: the descriptor of the board's memory, closed here.
        candidates: those that are there already.
    """

    def __init__(
        self,
        connection: socket.socket,
        board: int,
        request: dict[str, Any],
        candidates: Candidates,
    ) -> None:
        self.connection, self._inbox = connection, wire.Inbox()
        self._pid = getpid()
        self.ranks: list[int] = request["ranks"]
        self.engine: str = request["engine"]
        self.board = Board(board, request["size"])
        os.close(board)
        self.candidates = candidates
        self._own: int | None = request["cpu"]  # processor
        self._allowed = None if self._own is None else os.sched_getaffinity(0)
        self._lock = threading.Lock()
        self._imported = 0
        self._new = 0  # cases in which a candidate is likely to load something
        self._guards: dict[int | None, Guard] = {}  # rank → of its thread; None: of the process
        if (interface := request.get("interface")) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        self.worlds: dict[int, Any] = {}
        if self.engine == "threads":
            self.worlds = {rank: ThreadWorlds(rank) for rank in self.ranks}
            # one thread per rank, for good: torch registers groups by thread
            self.threads = {rank: ThreadPoolExecutor(1, f"rank{rank}") for rank in self.ranks}
            wait([thread.submit(int) for thread in self.threads.values()])  # all are up
        else:
            for rank in self.ranks:
                self.worlds[rank] = ProcessWorlds(
                    self.engine, rank, request["size"], request["store"]
                )

    def send(self, message: Any) -> None:
        if getpid() != self._pid:
            os._exit(0)  # what a candidate forked and let go on does not speak for the rank
        with self._lock:
            self.connection.sendall(wire.framed(message))

    def serve(self) -> None:
        """Answers the driver until it is gone."""
        self.send(Ready(getpid()))
        while True:
            try:
                message = wire.receive(self.connection, self._inbox)
            except (EOFError, OSError):
                return
            match message:
                case Teach():
                    self.send(Learned(message.key, self._learn(message)))
                case Asked():
                    self._call(message)
                case RunCase(key, work):
                    self._case(key, work)

    def _learn(self, given: Teach) -> str | None:
        """Loads a candidate; an error becomes a line."""
        if error := self.candidates.learn(given):
            return error
        self._guards.clear()  # what an import sets is there to stay
        self._new = 2
        return None

    def _case(self, key: str, work: Work) -> None:
        if self._new:
            # what is there stays: to look for garbage among that, too, after each case takes as
            # long as the passes of a small one
            garbage.set_aside()
            self._new -= 1
        ranks = [rank for rank in self.ranks if rank < work.case.world_size]
        self._pin(several=work.case.world_size > 1)
        if self.engine != "threads":
            for rank in ranks:
                self.send(self._rank(rank, key, work))
            return
        shared = self._guards.setdefault(None, guard.of_all_threads())
        futures = [self.threads[rank].submit(self._rank, rank, key, work) for rank in ranks]
        for count, future in enumerate(as_completed(futures), 1):
            ended = future.result()
            if count == len(ranks):
                _note(ended, shared)
            self.send(ended)

    def _pin(self, *, several: bool) -> None:
        """Several ranks keep to a processor each: it halves the time of small collectives. One
        alone goes where there is room: another run may have a rank on the same processor."""
        if self._own is None or self._allowed is None:
            return
        wanted = {self._own} if several else self._allowed
        if os.sched_getaffinity(0) != wanted:
            os.sched_setaffinity(0, wanted)
            self._guards.clear()  # it is part of the state that cases begin in

    def _call(self, asked: Asked) -> None:
        """Answers `Engine.call`: the function's value, or the traceback of what it raised."""

        def one(rank: int) -> None:
            value, error = b"", None
            try:
                mesh = self.worlds[rank].enter(asked.mesh, asked.epoch)
                value = cloudpickle.dumps(asked.function(mesh, *asked.args))
            except Exception:
                error = traceback.format_exc()
            self.send(Answered(rank, asked.epoch, value, error))

        ranks = [rank for rank in self.ranks if rank < math.prod(asked.mesh.values())]
        if self.engine != "threads":
            for rank in ranks:
                one(rank)
            return
        for future in [self.threads[rank].submit(one, rank) for rank in ranks]:
            future.result()

    def _rank(self, rank: int, key: str, work: Work) -> Ended:
        recorder = Recorder(
            rank, board=self.board, epoch=work.epoch, dispatch=self.engine != "threads"
        )
        self.board.begin(rank, work.epoch)
        world, before = self.worlds[rank], None
        outcome: RankReport | Mismatch
        try:
            mesh = world.enter(dict(work.case.mesh), work.epoch)
            if self.engine == "threads":
                set_recorder(recorder)
            before = self._guard(rank)
            outcome = rank_side.run_case(work, self.candidates.parts[key], mesh, recorder)
        except BaseException as error:
            stack = "".join(traceback.format_exception(error))
            outcome = rank_side.raised(error, recorder, stack)
        self.board.done(rank)
        _flush()
        ended = Ended(work.epoch, rank, outcome)
        if before is not None:
            _note(ended, before, *world.left())
        # Python's own functions are there again
        if isinstance(outcome, RankReport) and len(sys.modules) != self._imported:
            self._imported, outcome.loaded = len(sys.modules), parts_of_torch()
        return ended

    def _guard(self, rank: int) -> Guard:
        """That of a rank, with the state that its cases begin in."""
        if rank not in self._guards:
            threads = self.engine == "threads"
            self._guards[rank] = guard.of_thread() if threads else guard.of_rank()
        return self._guards[rank]


def _flush() -> None:
    """What the candidate printed in a case is there when the case has ended."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a candidate may have put anything in its place
            stream.flush()


def _note(ended: Ended, before: Guard, *found: Left) -> None:
    """Restores the state of before, and notes in the report what was not as it was. Ranks of a case
    that failed are not used again."""
    if isinstance(ended.outcome, RankReport):
        start = time.perf_counter()
        ended.outcome.left += [*found, *before.restore()]
        spent = ended.outcome.seconds
        spent["state"] = spent.get("state", 0.0) + time.perf_counter() - start


def prepare(engine: str) -> Candidates:
    """Makes a process one in which candidates are loaded."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.simplefilter("ignore")
    ignored.print_them()
    torch.set_num_threads(1)
    poison.spread()
    if engine == "threads":
        ThreadWorlds.install()
    else:
        watch_reduce_ops()
        if engine != "nccl":
            watch_works()
    return Candidates()


def serve_host(
    connection: int, board: int, request: dict[str, Any], candidates: Candidates
) -> None:
    """Entry of a forked host process, with the descriptors that the driver gave it, once it is
    prepared."""
    # torch replaces its pool of threads at the first use after a fork: here, not in two ranks at
    # once that are threads of this process, of which one would find none
    with warnings.catch_warnings(action="ignore"):
        torch.set_num_threads(torch.get_num_threads())
    Host(ends.taken_over(connection), board, request, candidates).serve()
