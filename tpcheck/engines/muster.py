"""The hosts of a world: all asked for at once, and taken when they are there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from multiprocessing import current_process
from typing import Any

from tpcheck.engines import Kind
from tpcheck.engines.forks import Awaited, Forks
from tpcheck.engines.hosts import Host
from tpcheck.errors import EngineUnavailable


class Muster:
    """Asks for hosts, and keeps those that have not come yet.

    Args:
        kind: of engine.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.source: Forks | None = None  # who was asked last
        self._awaited: list[Awaited] = []
        self._of = ""

    @property
    def open(self) -> bool:
        """Whether hosts have been asked for that were not taken."""
        return bool(self._awaited)

    def ask(self, source: Forks, store: str, board: int, of: str, size: int) -> None:
        """Asks for all hosts, without waiting for them.

        Args:
            size: of their world.
            store: the path of the file by which they meet.
            board: the descriptor of its memory.
            of: the world's name, for `source`.

        Raises:
            EngineUnavailable: nobody is there to be asked.
        """
        self.forget()
        self.source, self._of = source, of
        threads = not self.kind.processes
        groups = [list(range(size))] if threads else [[r] for r in range(size)]
        engine = "gloo" if self.kind.name == "torchrun" else self.kind.name
        world: dict[str, Any] = {"size": size, "engine": engine, "store": store}
        for index, ranks in enumerate(groups):
            request = {**world, "cpu": self._cpu(index, size)}
            self._awaited.append(source.ask(index, ranks, request, board, of))

    def taken(self, deadline: float) -> Iterator[Host]:
        """The hosts, as they come.

        Raises:
            EngineUnavailable: one can't be forked, or does not come.
        """
        while self._awaited and self.source is not None:
            host = self.source.host(self._awaited[0], deadline)
            del self._awaited[0]
            yield host

    def give_up(self) -> None:
        """Ends hosts that were asked for and not taken, also those that are not there yet."""
        if self._awaited and self.source is not None:
            with contextlib.suppress(EngineUnavailable):  # they have ended with it
                self.source.end(self._of)
        self.forget()

    def forget(self) -> None:
        """No longer expects those that were not taken."""
        for awaited in self._awaited:
            awaited.forget()
        self._awaited = []

    def _cpu(self, index: int, size: int) -> int | None:
        """Ranks are pinned round-robin: it halves the time of small collectives. The workers of a
        run (`--jobs`) have cores one after the other, and several runs each start at another."""
        if not hasattr(os, "sched_getaffinity") or not self.kind.processes:
            return None
        if self.kind.name == "torchrun":
            return None  # where a launcher puts processes is its own business
        allowed, worker = sorted(os.sched_getaffinity(0)), current_process()._identity
        first = os.getppid() + size * worker[-1] if worker else os.getpid()
        return allowed[(first + index) % len(allowed)]
