"""An engine's ranks as they live and die: the run's folder, the zygote, the hosts, their board."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tpcheck.comms.board import Board
from tpcheck.comms.memory import close_to_others
from tpcheck.engines import Kind
from tpcheck.engines.ahead import Ahead, taken
from tpcheck.engines.folder import RunFolder
from tpcheck.engines.forks import START_LIMIT, Forks
from tpcheck.engines.hosts import Host, watch, without
from tpcheck.engines.launched import Launched, zygote_of
from tpcheck.engines.muster import Muster
from tpcheck.engines.template_process import TemplateProcess
from tpcheck.engines.templates import Templates
from tpcheck.engines.zygote_process import ZygoteProcess
from tpcheck.errors import EngineUnavailable
from tpcheck.process.loaded import parts_of_torch
from tpcheck.protocol.messages import Ready, Teach

#: Seconds between two looks at hosts that have been asked something.
LOOK = 0.2

M = TypeVar("M")


class World:
    """Ranks that are started when they are wanted, and started anew when they are not fit.

    Args:
        kind: of engine.
        size: how many ranks there may be.
        preload: modules that the zygote imports once for all ranks.
        ahead: a zygote that was started before, where there is one.
    """

    def __init__(
        self, kind: Kind, size: int, preload: Iterable[str], ahead: Ahead | None = None
    ) -> None:
        self.kind, self.size, self.preload = kind, size, sorted(preload)
        self.starts, self.hosts = 0, list[Host]()
        self.board: Board | None = None
        self.loaded: set[str] = set()  # torch's packages that ranks have imported
        self.ran = 0  # cases on the ranks that are up
        self.templates = Templates(kind)
        self._muster = Muster(kind)
        self._up = size  # how many were started
        self._has: set[str] = set()  # parts of torch that they were forked with
        self._memory: int | None = None  # the descriptor of their board
        self._store: Path | None = None
        self.folder, self._zygote = taken(ahead, kind.name, self.preload)
        self.warm_up()

    @property
    def processes(self) -> set[int]:
        """The numbers of its own: of zygote, template and hosts, as far as they are known."""
        found = [self._zygote.pid if self._zygote else None, self.templates.pid]
        return {pid for pid in (*found, *(host.pid for host in self.hosts)) if pid is not None}

    def warm_up(self) -> ZygoteProcess:
        """Starts loading torch in the zygote, without waiting for it; a new one where the old one
        was killed."""
        self.folder.renew()
        if self._zygote is not None and not self._zygote.alive:
            self._end_zygote()
        if self._zygote is None:
            self._zygote = zygote_of(self.kind.name, self.preload, self.folder)
        return self._zygote

    def start(self, candidate: Teach | None = None, ranks: int | None = None) -> None:
        """Forks the hosts and waits until they have met; does nothing when they are up and fit.

        Args:
            candidate: what new ones are to have loaded, where that can be.
            ranks: how many are needed; by default all.

        Raises:
            EngineUnavailable: they can't be forked here, or don't come up.
        """
        if self.folder.is_full:  # to another one
            self.close()
            self.folder = RunFolder()
            self.folder.require_room()
        if self._muster.open:  # else it is begun once more below
            with contextlib.suppress(EngineUnavailable):
                self._meet()
        enough = (ranks or self.size) <= self._up
        if self.hosts and enough and self._fit() and not self._lack(candidate):
            return
        self.kill()
        self._up = self._up if enough else self.size
        try:
            self._begin(candidate)
            self._meet()
        except EngineUnavailable:
            if self.starts == 1 or self.agents is not None:
                raise
            self._end_zygote()  # it has forked before: a candidate may have harmed it since
            self._begin(None)
            self._meet()

    def renew(self, candidate: Teach | None = None, ranks: int | None = None) -> None:
        """Has the next case run on ranks on which nothing ran, nor was loaded but the candidate.
        Forks them, where these are not such, without waiting: its numbers are drawn meanwhile.

        Args:
            ranks: how many to fork, where the next cases are likely to need no more.
        """
        if not self._is_new(candidate):
            self.kill()
            self.folder.clear()
            self._up = min(ranks or self.size, self.size) if self.kind.processes else self.size
            with contextlib.suppress(EngineUnavailable):  # `start` tries again, and says why
                self._begin(candidate)

    def _is_new(self, candidate: Teach | None) -> bool:
        if self.ran:
            return False
        if not (self._muster.open or self.hosts):
            return candidate is None
        own = self.templates.possible(candidate)
        source = self.templates.of(candidate) if own else self._zygote
        known = {candidate.key if candidate else None}
        return self._muster.source is source and all(h.parts <= known for h in self.hosts)

    def _lack(self, candidate: Teach | None) -> bool:
        """Whether each rank would import parts of torch, and then look them through for garbage."""
        new = candidate and not self.agents and without(self.hosts, candidate.key)
        return bool(new) and not self._has.issuperset(_needed(self.kind, self.loaded, candidate))

    def _begin(self, candidate: Teach | None) -> None:
        zygote = self.warm_up()
        self.starts += 1
        self._store = self.folder.path / f"store{self.starts}"
        self.board, self._memory = _board(self.kind, self.size)
        needed = _needed(self.kind, self.loaded, candidate)
        self._has = set(needed)
        try:
            if self.agents is not None:
                self.agents.meet()
            zygote.load(needed)
            template = self.templates.begun(zygote, candidate)
            if template is not None:
                template.load(needed)
            self._ask(template or zygote)
        except BaseException:
            self.kill()
            raise

    def _ask(self, source: Forks) -> None:
        assert self._memory is not None, "`_begin` makes the board"
        store = self.agents.launch.store_of(self.starts) if self.agents else str(self._store)
        self._muster.ask(source, store, self._memory, f"world {self.starts}", self._up)

    def _meet(self) -> None:
        """Waits until the ranks that were asked for have met."""
        try:
            template = self._muster.source
            if isinstance(template, TemplateProcess) and not template.fit():
                self.templates.refuse(template)
                self._ask(self.warm_up())
            deadline = time.monotonic() + START_LIMIT
            self.hosts += self._muster.taken(deadline)
            for host in self.hosts:
                self.expect(host, Ready, deadline, "start")
            assert self._memory is not None, "it is kept from `_begin` on"
            close_to_others(self._memory)
            self._forget_memory()
            if not self.kind.processes or self.agents is not None:
                self._store = None  # they meet in their own memory, or in the launcher's store
        except BaseException:
            self.kill()
            raise

    def _fit(self) -> bool:
        """Whether the next case can run on the ranks as they are: what one left running, or did to
        the run's files, may have ended them since."""
        watch(self.hosts, 0.0)
        whole = self._store is None or self._store.exists()
        forks = all(s is not None and s.alive for s in (self._zygote, self._muster.source))
        return whole and forks and not any(h.take() is not None or h.lost for h in self.hosts)

    def kill(self) -> None:
        """Ends all ranks at once; the next case starts new ones."""
        for host in self.hosts:
            host.kill()
        self.hosts, self.ran = [], 0
        self._muster.give_up()
        self._forget_memory()
        if self._store is not None:
            with contextlib.suppress(OSError):
                self._store.unlink()
            self._store = None

    def _forget_memory(self) -> None:
        if self._memory is not None:
            memory, self._memory = self._memory, None
            os.close(memory)

    def close(self) -> None:
        """Ends ranks and zygote and removes the run's folder."""
        self.kill()
        if self._zygote is not None:
            self._end_zygote()
            self.folder.remove()

    def _end_zygote(self) -> None:
        self.templates.end()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def expect(self, host: Host, kind: type[M], deadline: float, doing: str) -> M:
        """The host's next message of this kind; what else comes is not waited for."""
        while True:
            if (message := host.take()) is not None:
                if isinstance(message, kind):
                    return message
                continue
            if (why := _ended(self.hosts, host, doing, deadline)) is not None:
                self.kill()
                raise EngineUnavailable(f"engine {self.kind.name!r}: {why}")
            if self.agents is not None:
                self.agents.require(every=True)
            watch(self.hosts, min(LOOK, deadline - time.monotonic()))

    def status_of(self, host: Host) -> int | None:
        """How a dead host ended (`Forks.status_of`)."""
        return self._muster.source.status_of(host) if self._muster.source else None

    @property
    def agents(self) -> Launched | None:
        """Of a launch, what asks its processes."""
        return self._zygote if isinstance(self._zygote, Launched) else None


def _needed(kind: Kind, loaded: set[str], candidate: Teach | None) -> list[str]:
    """Parts of torch that ranks are forked with: what is loaded here, what other ranks have, and
    what the candidate's will. None on a GPU: some ask CUDA, which a fork then can't use."""
    if kind.device != "cpu":
        return []
    return sorted({*parts_of_torch(), *loaded, *(candidate.loads if candidate else ())})


def _board(kind: Kind, size: int) -> tuple[Board, int]:
    try:
        return Board.new(size)
    except OSError as error:
        why = f"no memory for the board of {size} ranks: {error.strerror}"
        raise EngineUnavailable(f"engine {kind.name!r} could not start: {why}") from None


def _ended(hosts: Sequence[Host], host: Host, doing: str, deadline: float) -> str | None:
    """Why a host says nothing: it has ended, or one without which it can't go on; None while it
    may."""
    late, lost = time.monotonic() > deadline, [other for other in hosts if other.lost]
    if not late and not lost:
        return None
    found = host if late or host in lost else lost[0]
    what = "hung" if late else "died"
    return f"rank {found.ranks[0]} {what} ({doing}): {found.log_tail()[-300:]}"
