"""The driver of a launch: the host of its own rank is forked here, those of the others by their
agents. For each of these stands a relay, a process of ours that passes on what it says: it has its
socket, its log and its end, so that nothing else here knows where a rank is.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpcheck.engines.agent import ADDRESS
from tpcheck.engines.folder import RunFolder
from tpcheck.engines.forks import Awaited
from tpcheck.engines.hosts import Host, readable
from tpcheck.engines.launch import MEET, Launch, launch
from tpcheck.engines.logs import Log
from tpcheck.engines.relay import Relay
from tpcheck.engines.zygote_process import ZygoteProcess
from tpcheck.errors import EngineUnavailable
from tpcheck.protocol import ends, parcels
from tpcheck.protocol.messages import Work
from tpcheck.protocol.parcels import Broken, Parcel, Wire, in_json, packed

#: Seconds in which an agent answers that it is there.
PING_LIMIT = 10.0
#: Requests of agents have numbers beyond those of the zygote.
_OTHERS = 1 << 30


class Launched(ZygoteProcess):
    """What hosts of a launch are asked of.

    Args:
        preload, folder: as of `ZygoteProcess`.
    """

    def __init__(self, launch: Launch, preload: Sequence[str], folder: RunFolder) -> None:
        super().__init__("torchrun", preload, folder)
        self.launch, self.preloaded = launch, list(preload)
        self._loaded: set[str] = set()
        self._agents: dict[int, tuple[Wire, str]] = {}  # rank → its connection, and its machine
        self._relays: dict[int, Relay] = {}  # number of a request → what stands for it
        self._without: str | None = None  # why no world can be started any more
        self._required = time.monotonic()  # when the agents were last asked
        self._number = _OTHERS
        self._token = secrets.token_hex(16)
        self._store = launch.store()
        self._listening = socket.create_server((launch.own_address(), 0), backlog=launch.size)
        address, port = self._listening.getsockname()[:2]
        told = {"address": address, "port": port, "token": self._token}
        self._store.set(ADDRESS, json.dumps(told))

    def meet(self) -> None:
        """Waits for the agents of all other ranks, and asks whether they are there.

        Raises:
            EngineUnavailable: one does not come, or is gone.
        """
        deadline = time.monotonic() + MEET
        while len(self._agents) < self.launch.size - 1:
            dialled = self._accepted(deadline)
            if dialled is None:
                there = {0, *self._agents}
                absent = sorted(set(range(self.launch.size)) - there)
                raise EngineUnavailable(
                    f"engine 'torchrun': of {self.launch.size} processes, ranks {absent} did not "
                    f"come within {MEET:g} s"
                )
            wire, about = dialled
            if "rank" in about:
                self._agents[about["rank"]] = wire, str(about["host"])
        self.require()

    def require(self, *, every: bool = False) -> None:
        """
        Args:
            every: not more often than once in `PING_LIMIT` seconds.

        Raises:
            EngineUnavailable: one does not answer: its machine is cut off, or its launcher has
                ended it.
        """
        if every and time.monotonic() < self._required + PING_LIMIT:
            return
        self._required = time.monotonic()
        for rank, (control, machine) in self._agents.items():
            if self._without is not None:
                break
            try:
                control.send(packed(Parcel.PING))
                control.expect(Parcel.PONG, PING_LIMIT)
            except Broken:
                self._without = (
                    f"the process of rank {rank} on {machine} no longer answers: its machine is "
                    "cut off, or it was ended"
                )
        if self._without is not None:  # for good: nothing here starts it again
            raise EngineUnavailable(self._without)

    # ---- as `Forks`

    def load(self, modules: list[str]) -> None:
        super().load(modules)
        self._loaded |= set(modules)

    def ask(
        self, index: int, ranks: list[int], request: dict[str, Any], board: int, of: str
    ) -> Awaited:
        if index == 0:
            own = {**request, "interface": self.launch.interface()}
            return super().ask(index, ranks, own, board, of)
        control, machine = self._agents[index]
        self._number += 1
        start: dict[str, Any] = {
            "number": self._number,
            "index": index,
            "ranks": ranks,
            "request": request,
            "of": of,
            "folder": str(self.folder.path),
            "preload": self.preloaded,
            "load": sorted(self._loaded),
        }
        try:
            control.send(in_json(Parcel.START, **start))
        except Broken:
            raise EngineUnavailable(f"the process of rank {index} on {machine} is gone") from None
        mine, theirs = ends.pair()
        reads, writes = os.pipe()
        size = request["size"]
        self._relays[self._number] = Relay(theirs, writes, os.dup(board), size, of)
        return Awaited(self._number, index, ranks, mine, Log(reads))

    def host(self, awaited: Awaited, deadline: float) -> Host:
        if awaited.number <= _OTHERS:
            return super().host(awaited, deadline)
        relay = self._relays[awaited.number]
        while relay.data is None:
            dialled = self._accepted(deadline)
            if dialled is None:
                raise self._not_in_time(awaited)
            wire, about = dialled
            if (other := self._relays.get(about.get("number", 0))) is not None:
                other.data = wire
        started = relay.data.waiting or self._comes(relay.data.connection, deadline)
        if not started:
            raise self._not_in_time(awaited)
        shared = relay.begin(deadline, self.folder.path)
        connection, log = awaited.connection, awaited.log
        return RemoteHost(awaited.index, awaited.ranks, connection, relay.pid, log, shared=shared)

    def status_of(self, host: Host) -> int | None:
        for relay in self._relays.values():
            if relay.pid == host.pid:
                return relay.status()
        return super().status_of(host)

    def end(self, of: str) -> None:
        for relay in self._relays.values():
            if relay.of == of:
                relay.end()
        super().end(of)

    def close(self) -> None:
        for relay in self._relays.values():
            relay.end()
        for control, _ in self._agents.values():
            with contextlib.suppress(Broken):
                control.send(packed(Parcel.BYE))
            control.close()
        self._listening.close()
        super().close()

    def _not_in_time(self, awaited: Awaited) -> EngineUnavailable:
        return EngineUnavailable(f"engine 'torchrun': rank {awaited.index} did not start in time")

    def _comes(self, connection: socket.socket, deadline: float) -> bool:
        """Whether something comes there in time; meanwhile the agents are asked whether they are
        there.

        Raises:
            EngineUnavailable: one is gone.
        """
        while (left := deadline - time.monotonic()) > 0:
            if readable([connection.fileno()], min(left, PING_LIMIT)):
                return True
            self.require(every=True)
        return False

    def _accepted(self, deadline: float) -> tuple[Wire, dict[str, Any]] | None:
        """The next that dials and knows the token; None where none does in time.

        Raises:
            EngineUnavailable: an agent is gone.
        """
        while self._comes(self._listening, deadline):
            connection, _ = self._listening.accept()
            wire = Wire(connection)
            with contextlib.suppress(Broken, ValueError):
                about = json.loads(wire.expect(Parcel.HELLO, PING_LIMIT))
                if secrets.compare_digest(str(about.pop("token", "")), self._token):
                    return wire, about
            wire.close()
        return None


class RemoteHost(Host):
    """A host on another machine, for which its relay stands here.

    Args:
        shared: whether it sees the driver's files.
    """

    def __init__(self, *of_host: Any, shared: bool) -> None:
        super().__init__(*of_host)
        self.shared = shared

    def send_framed(self, message: bytes) -> bool:
        return super().send_framed(packed(Parcel.DATA, message))

    def ship(self, work: Work) -> None:
        if self.shared:
            return
        watched = [Path(name) for name in (work.suspects, work.dump) if name]
        given = [Path(work.bundle)]
        if work.checkpoint:
            (watched if work.saving else given).append(Path(work.checkpoint))
        super().send_framed(parcels.of_files(given, watched))


def zygote_of(engine: str, preload: Sequence[str], folder: RunFolder) -> ZygoteProcess:
    """What the ranks of an engine are forked from."""
    if engine == "torchrun":
        return Launched(launch(), preload, folder)
    return ZygoteProcess(engine, preload, folder)
