"""The driver's side of an engine: starts ranks, gives them cases, collects evidence, recovers.

A rank that raises, hangs, dies, or disagrees about the next collective is evidence, not an error of
the run: `run` always returns one outcome per rank, and the next `run` finds working ranks, new ones
if need be.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from tpcheck import engines
from tpcheck.engines.hosts import Host, without
from tpcheck.engines.template_process import PARTS_LIMIT
from tpcheck.engines.waiting import Collection
from tpcheck.engines.world import World
from tpcheck.errors import EngineUnavailable, InvalidArgument
from tpcheck.kernels import sanitizer
from tpcheck.protocol import wire
from tpcheck.protocol.leftovers import INSIDE
from tpcheck.protocol.messages import Answered, Asked, Learned, RunCase, Teach
from tpcheck.verdict import Mismatch

if TYPE_CHECKING:
    from tpcheck.case import Case
    from tpcheck.engines.ahead import Ahead
    from tpcheck.protocol.messages import RankReport, Work

#: Characters that are kept of what a process prints in a case, the last ones: more would make a
#: report of a candidate that prints tensors hard to read and large.
PRINTED = 4000


class Engine:
    """Warm ranks. A context manager; `close()` leaves no process behind.

    Args:
        kind: `gloo`, `nccl` or `threads`.
        ranks: the size of the world, an upper limit on every case's mesh.
        time_limit: seconds that one case may take on the ranks.
        preload: modules that the zygote imports once for all ranks, where installed.
        ahead: a zygote that was started before torch was loaded here, to be taken if it fits.
    """

    def __init__(
        self,
        kind: str = "gloo",
        ranks: int = 4,
        *,
        time_limit: float = 30.0,
        preload: Iterable[str] = (),
        ahead: Ahead | None = None,
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
        self.canary_ran = False
        self.untrusted: str | None = None  # why no verdict on it counts: the canary was not found
        self.epoch = 0
        self.printed: dict[int, str] = {}  # in the last case: the first rank of a process → text
        self.moment: Callable[[], None] = lambda: None  # called while a case is waited for
        self.world = World(self.kind, ranks, preload, ahead)

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def preload(self) -> list[str]:
        return self.world.preload

    @property
    def starts(self) -> int:
        """How often ranks were started."""
        return self.world.starts

    @property
    def hosts(self) -> list[Host]:
        """The processes that are up."""
        return self.world.hosts

    @property
    def folder(self) -> Path:
        """Where this run's files are; gone when the engine is closed."""
        return self.world.folder.path

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self, ranks: int | None = None) -> None:
        """Starts the ranks and waits until they have met; does nothing where they are up and fit.

        Args:
            ranks: how many are needed; by default all.

        Raises:
            EngineUnavailable: they can't be forked here, or don't come up.
        """
        self.world.start(ranks=ranks)

    @property
    def ran(self) -> int:
        """How many cases have run on the ranks that are up."""
        return self.world.ran

    def renew(self, candidate: Teach | None = None, ranks: int | None = None) -> None:
        """Has the next case run on ranks on which none has run, and on which no other candidate was
        loaded; does not wait for them.

        Args:
            candidate: the one of that case: it is imported meanwhile, once for all ranks.
            ranks: how many to start, where the next cases are likely to need no more.
        """
        self.world.renew(candidate, ranks)

    def kill(self) -> None:
        """Ends all ranks at once; the next case starts new ones."""
        self.world.kill()

    def close(self) -> None:
        """Ends ranks and zygote and removes the run's folder. What a reference has closed of it is
        closed."""
        for end in (self.world.kill, self.world.close):
            with contextlib.suppress(OSError):
                end()

    # ---- cases

    def teach(self, candidate: Teach, ranks: int | None = None) -> None:
        """Gives every rank the candidate, once.

        Args:
            ranks: how many the next case needs; by default all.

        Raises:
            InvalidArgument: the ranks can't import it.
            EngineUnavailable: they can't be started, or don't outlive it.
        """
        self.world.start(candidate, ranks)
        new = without(self.hosts, candidate.key)
        if not new:
            return
        message = wire.framed(candidate)  # once for all
        for host in new:
            host.send_framed(message)  # one that does not take it is not heard of either
        deadline = time.monotonic() + PARTS_LIMIT
        learned = [self.world.expect(h, Learned, deadline, "importing the candidate") for h in new]
        for answer in learned:
            if answer.error:
                raise InvalidArgument(f"the ranks can't import the candidate: {answer.error}")
        for host in new:
            host.parts.add(candidate.key)

    def require(self, case: Case) -> None:
        """Raises `EngineUnavailable` where the case needs more ranks than the engine has."""
        size = case.world_size
        if size > self.ranks:
            raise EngineUnavailable(
                f"the case needs {size} ranks ({case.describe()}) and the engine has "
                f"{self.ranks}; give --ranks {size} or a smaller mesh"
            )

    def run(
        self, key: str, work: Work, meanwhile: Callable[[], object] | None = None
    ) -> list[RankReport | Mismatch]:
        """Runs one case; returns one outcome per rank, whatever happens to the ranks.

        Args:
            meanwhile: what the driver does while they work; limits count from its end.

        Raises:
            EngineUnavailable: the case needs more ranks than the engine has.
        """
        self.require(work.case)
        hosts = [h for h in self.hosts if h.ranks[0] < work.case.world_size]
        message = wire.framed(RunCase(key, work))  # once for all
        before = {host: host.log.written for host in hosts}
        self.world.ran += 1
        sanitizer.begin()  # before a rank may have written of this case
        for host in hosts:
            host.ship(work)
            host.send_framed(message)
        if meanwhile is not None:
            meanwhile()
        assert self.world.board is not None, "teach() starts the ranks"
        wait = Collection(
            hosts,
            work,
            board=self.world.board,
            time_limit=self.time_limit,
            status_of=self.world.status_of,
            require=partial(_require_agents, self),
            moment=self.moment,
        )
        outcomes = wait.outcomes()
        told = {host.ranks[0]: host.log.printed(n, PRINTED) for host, n in before.items()}
        self.printed = {rank: text for rank, text in told.items() if text.strip()}
        self.world.loaded.update(*(o.loaded for o in outcomes if not isinstance(o, Mismatch)))
        if wait.spoilt:
            _require_agents(self)
            self.kill()
            self.world.folder.require_room()
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
                answer = self.world.expect(host, Answered, deadline, "a call")
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


def _require_agents(engine: Engine) -> None:
    """Raises `EngineUnavailable` where a process of a launch is gone: what became of its rank says
    nothing of the candidate."""
    try:
        if (agents := engine.world.agents) is not None:
            agents.require()
    except EngineUnavailable:
        engine.kill()
        raise
