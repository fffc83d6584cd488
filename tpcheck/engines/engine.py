"""The driver's side of an engine: starts ranks, gives them cases, collects evidence, recovers.

A rank that raises, hangs, dies, or disagrees about the next collective is evidence, not an error of
the run: `run` always returns one outcome per rank, and the next `run` finds working ranks, new ones
if need be.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from tpcheck import engines
from tpcheck.comms.board import Board
from tpcheck.engines.folder import RunFolder
from tpcheck.engines.hosts import Host, watch
from tpcheck.engines.waiting import Collection
from tpcheck.engines.zygote_process import START_LIMIT, ZygoteProcess
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.protocol import wire
from tpcheck.protocol.leftovers import INSIDE
from tpcheck.protocol.messages import Answered, Asked, Learned, Ready, RunCase, Teach
from tpcheck.verdict import Mismatch

if TYPE_CHECKING:
    from tpcheck.case import Case
    from tpcheck.protocol.messages import RankReport, Work

#: Seconds between two looks at hosts that have been asked something.
LOOK = 0.2
#: Seconds for the ranks to import a candidate, which may import a framework for the first time.
PARTS_LIMIT = 180.0


M = TypeVar("M")


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
        self.canary_ran = False
        self.untrusted: str | None = None  # why no verdict on it counts: the canary was not found
        self.epoch = 0
        self.starts = 0
        self.hosts: list[Host] = []
        self.board: Board | None = None
        self._store: Path | None = None
        self._zygote: ZygoteProcess | None = None
        self._folder = RunFolder()
        self.warm_up()

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def folder(self) -> Path:
        """Where this run's files are; gone when the engine is closed."""
        return self._folder.path

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- life and death

    def warm_up(self) -> ZygoteProcess:
        """Starts loading torch in the zygote, without waiting for it; a new one where the old one
        was killed."""
        self._folder.renew()
        if self._zygote is not None and not self._zygote.alive:
            self._zygote.close()
            self._zygote = None
        if self._zygote is None:
            self._zygote = ZygoteProcess(self.name, self.preload, self._folder)
        return self._zygote

    def start(self) -> None:
        """Forks the hosts and waits until they have met; does nothing when they are up.

        Raises:
            EngineUnavailable: they can't be forked here, or don't come up.
        """
        if self.hosts and self._fit():
            return
        self.kill()
        zygote = self.warm_up()
        self.starts += 1
        self._store = self.folder / f"store{self.starts}"
        try:
            self.board, memory = Board.new(self.ranks)
        except OSError as error:
            why = f"no memory for the board of {self.ranks} ranks: {error.strerror}"
            raise EngineUnavailable(f"engine {self.name!r} could not start: {why}") from None
        threads = not self.kind.processes
        groups = [list(range(self.ranks))] if threads else [[r] for r in range(self.ranks)]
        world = {"size": self.ranks, "engine": self.name, "store": str(self._store)}
        try:
            for index, ranks in enumerate(groups):
                request = {**world, "cpu": self._cpu(index)}
                self.hosts.append(zygote.fork(index, ranks, request, memory))
            deadline = time.monotonic() + START_LIMIT
            for host in self.hosts:
                self._expect(host, Ready, deadline, "start")
            Board.close_to_others(memory)
            if threads:
                self._store = None  # they meet in their own memory
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(memory)

    def _fit(self) -> bool:
        """Whether the next case can run on the ranks as they are: what one left running, or did to
        the run's files, may have ended them since."""
        watch(self.hosts, 0.0)
        whole = self._store is None or self._store.exists()
        forks = self._zygote is not None and self._zygote.alive
        return (
            whole
            and forks
            and all(host.take() is None for host in self.hosts)
            and not any(host.lost for host in self.hosts)
        )

    def _cpu(self, index: int) -> int | None:
        """Ranks are pinned round-robin: it halves the time of small collectives. Several runs
        side by side each start at another core."""
        if not hasattr(os, "sched_getaffinity") or not self.kind.processes:
            return None
        allowed = sorted(os.sched_getaffinity(0))
        return allowed[(index + os.getpid()) % len(allowed)]

    def kill(self) -> None:
        """Ends all ranks at once; the next case starts new ones."""
        for host in self.hosts:
            host.kill()
        self.hosts = []
        if self._store is not None:
            self._store.unlink(missing_ok=True)
            self._store = None

    def close(self) -> None:
        """Ends ranks and zygote and removes the run's folder."""
        self.kill()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
            self._folder.remove()

    # ---- cases

    def _expect(self, host: Host, kind: type[M], deadline: float, doing: str) -> M:
        """The host's next message of this kind; what else comes is not waited for."""
        while True:
            message = host.take()
            if isinstance(message, kind):
                return message
            if message is not None:
                continue
            late = time.monotonic() > deadline
            if late or host.lost:
                tail = host.log_tail()[-300:]
                self.kill()
                what = "hung" if late else "died"
                raise EngineUnavailable(
                    f"engine {self.name!r}: rank {host.ranks[0]} {what} ({doing}): {tail}"
                )
            watch(self.hosts, min(LOOK, deadline - time.monotonic()))

    def teach(self, key: str, blob: bytes, files: dict[str, str]) -> None:
        """Gives every rank the candidate `key` (cloudpickled), once.

        Raises:
            InvalidArgument: the ranks can't import it.
            EngineUnavailable: they can't be started, or don't outlive it.
        """
        self.start()
        new = [host for host in self.hosts if key not in host.parts]
        if not new:
            return
        message = wire.framed(Teach(key, blob, list(sys.path), files))  # once for all
        for host in new:
            host.send_framed(message)  # one that does not take it is not heard of either
        deadline = time.monotonic() + PARTS_LIMIT
        learned = [self._expect(h, Learned, deadline, "importing the candidate") for h in new]
        for answer in learned:
            if answer.error:
                raise InvalidArgument(f"the ranks can't import the candidate: {answer.error}")
        for host in new:
            host.parts.add(key)

    def require(self, case: Case) -> None:
        """Raises `EngineUnavailable` where the case needs more ranks than the engine has."""
        size = case.world_size
        if size > self.ranks:
            raise EngineUnavailable(
                f"the case needs {size} ranks ({case.describe()}) and the engine has "
                f"{self.ranks}; give --ranks {size} or a smaller mesh"
            )

    def run(self, key: str, work: Work) -> list[RankReport | Mismatch]:
        """Runs one case; returns one outcome per rank, whatever happens to the ranks.

        Raises:
            EngineUnavailable: the case needs more ranks than the engine has.
        """
        self.require(work.case)
        hosts = [h for h in self.hosts if h.ranks[0] < work.case.world_size]
        message = wire.framed(RunCase(key, work))  # once for all
        for host in hosts:
            host.send_framed(message)
        assert self.board is not None, "teach() starts the ranks"
        wait = Collection(
            hosts,
            work,
            board=self.board,
            time_limit=self.time_limit,
            status_of=self.status_of,
        )
        outcomes = wait.outcomes()
        if wait.spoilt:
            self.kill()
            self._folder.require_room()
        return outcomes

    def call(self, function: Callable[..., Any], *args: Any, mesh: Mapping[str, int]) -> list[Any]:
        """`function(mesh, *args)` on every rank of `mesh`, outside any case; one answer per rank.

        Raises:
            EngineUnavailable: a rank raised, died, or took longer than `time_limit`.
        """
        self.start()
        size = math.prod(mesh.values())
        asked = Asked(function, args, dict(mesh), self.next_epoch())
        hosts = [host for host in self.hosts if host.ranks[0] < size]
        for host in hosts:
            host.send(asked)
        deadline = time.monotonic() + self.time_limit
        answers: dict[int, Any] = {}
        for host in hosts:
            for _ in [rank for rank in host.ranks if rank < size]:
                answer = self._expect(host, Answered, deadline, "a call")
                if answer.error:
                    self.kill()
                    raise EngineUnavailable(
                        f"engine {self.name!r}: rank {answer.rank} raised:\n{answer.error}"
                    )
                answers[answer.rank] = cloudpickle.loads(answer.value)
        return [answers[rank] for rank in range(size)]

    def next_epoch(self) -> int:
        """A number for a case, never used before in this engine."""
        self.epoch += 1
        return self.epoch

    def status_of(self, host: Host) -> int | None:
        """How a dead host ended (`ZygoteProcess.status_of`)."""
        return self._zygote.status_of(host) if self._zygote else None
