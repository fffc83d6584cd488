"""The other processes of a launch: each starts the host of its rank when the driver asks for it, as
often as it does, and carries what goes between the two."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpcheck.comms.board import Board
from tpcheck.comms.memory import close_to_others
from tpcheck.engines.folder import RunFolder
from tpcheck.engines.forks import START_LIMIT
from tpcheck.engines.hosts import Host, readable
from tpcheck.engines.launch import MEET, Launch
from tpcheck.engines.zygote_process import ZygoteProcess
from tpcheck.errors import EngineUnavailable
from tpcheck.protocol import folders, parcels, wire
from tpcheck.protocol.parcels import Broken, Parcel, Wire, in_json, packed

#: Under which the driver says in the launcher's store where it listens.
ADDRESS = "driver"
#: Seconds between two looks at what a host has written on its board, while nothing else comes.
LOOK = 0.01


def follow(launch: Launch) -> None:
    """Does what the driver asks for, until it says that it has done.

    Raises:
        EngineUnavailable: there is no driver, or it is gone.
    """
    told = json.loads(launch.said(ADDRESS))
    control = dialled(told, rank=launch.rank, host=socket.gethostname())
    agent = Agent(launch, told, control)
    try:
        agent.serve()
    except Broken as error:
        raise EngineUnavailable(f"engine 'torchrun': rank 0 is gone: {error}") from None
    finally:
        agent.close()


def dialled(told: dict[str, Any], **about: Any) -> Wire:
    """A connection to the driver, which knows then who it is."""
    try:
        connection = socket.create_connection((told["address"], told["port"]), timeout=MEET)
    except OSError as error:
        where = f"{told['address']}:{told['port']}"
        raise EngineUnavailable(
            f"engine 'torchrun': rank 0 can't be reached at {where}: {error}"
        ) from None
    found = Wire(connection)
    found.send(in_json(Parcel.HELLO, token=told["token"], **about))
    return found


class Agent:
    """One process of a launch, other than the first.

    Args:
        told: where the driver listens.
        control: over which it says what to do.
    """

    def __init__(self, launch: Launch, told: dict[str, Any], control: Wire) -> None:
        self.launch, self.told, self.control = launch, told, control
        self.folder: RunFolder | None = None
        self.zygote: ZygoteProcess | None = None
        self.made: Path | None = None  # the driver's folder, made here
        self._lock = threading.Lock()
        self._hosting: list[threading.Thread] = []

    def serve(self) -> None:
        """
        Raises:
            Broken: the driver is gone.
        """
        while True:
            for kind, body in self.control.read():
                match kind:
                    case Parcel.PING:
                        self.control.send(packed(Parcel.PONG))
                    case Parcel.BYE:
                        return
                    case Parcel.START:
                        thread = threading.Thread(target=self._host, args=(json.loads(body),))
                        thread.daemon = True
                        thread.start()
                        self._hosting.append(thread)

    def close(self) -> None:
        self.control.close()
        if self.zygote is not None:
            self.zygote.close()
        if self.folder is not None:
            self.folder.remove()
        if self.made is not None:
            folders.remove(self.made)

    def _host(self, asked: dict[str, Any]) -> None:
        """One host, from its start to its end."""
        try:
            data = dialled(self.told, number=asked["number"])
        except EngineUnavailable:
            return  # the driver is gone, which `serve` hears of
        try:
            with self._lock:  # one at a time starts
                hosted = self._started(asked, data)
            hosted.carry()
        except Broken:
            pass  # the driver wants it no more
        except Exception as error:
            with contextlib.suppress(Broken):
                data.send(packed(Parcel.FAILED, str(error).encode()))
        finally:
            data.close()

    def _started(self, asked: dict[str, Any], data: Wire) -> Hosted:
        if self.folder is None or self.zygote is None or not self.zygote.alive:
            self.folder = self.folder or RunFolder()
            self.folder.renew()
            self.zygote = ZygoteProcess("torchrun", asked["preload"], self.folder)
        zygote, size = self.zygote, asked["request"]["size"]
        zygote.load(asked["load"])
        board, memory = Board.new(size)
        deadline = time.monotonic() + START_LIMIT
        request = {**asked["request"], "interface": self.launch.interface()}
        try:
            awaited = zygote.ask(asked["index"], asked["ranks"], request, memory, asked["of"])
            host = zygote.host(awaited, deadline)
        except BaseException:
            os.close(memory)
            raise
        folder = Path(asked["folder"])
        shared = self.made is None and folder.exists()
        self.made = None if shared else folder
        data.send(in_json(Parcel.STARTED, pid=host.pid, shared=shared))
        return Hosted(host, zygote, self._lock, board, memory, data, folder)


@dataclass
class Hosted:
    """A host, and the connection to the driver over which it is heard.

    Args:
        lock: held by whoever asks the zygote.
        memory: the board's, until the host has it.
        folder: the driver's of this run, which is made here, too, where it is not there.
    """

    host: Host
    zygote: ZygoteProcess
    lock: threading.Lock
    board: Board
    memory: int | None
    data: Wire
    folder: Path
    watched: list[str] = field(default_factory=list)
    _known: tuple[int, int] = (0, 0)
    _head: bytes = b""
    _logged: int = 0
    _given: list[str] = field(default_factory=list)

    def carry(self) -> None:
        """Until the host, or the driver's interest in it, has ended.

        Raises:
            Broken: the driver wants it no more.
        """
        try:
            while not self._over():
                ready = readable([self.data.connection.fileno(), *self.host.descriptors()], LOOK)
                if self.data.connection.fileno() in ready:
                    for parcel in self.data.read():
                        self._take(*parcel)
                self.host.look()
                self._tell()
        finally:
            self._close_memory()
            self.host.kill()
            self._forget_files()

    def _over(self) -> bool:
        lost = self.host.lost
        if lost is None:
            return False
        self._tell()
        with self.lock:
            status = self.zygote.status_of(self.host)
        self.data.send(in_json(Parcel.ENDED, status=status, lost=lost.value))
        return True

    def _take(self, kind: Parcel, body: bytes) -> None:
        if kind is Parcel.DATA:
            self.host.send_framed(body)
        elif kind is Parcel.STACKS:
            self.host.ask_for_stacks()
        elif kind is Parcel.FILES:
            self._forget_files()
            files, made, self.watched = parcels.unpacked(body)
            self._given = [*files, *made]
            self.folder.mkdir(parents=True, exist_ok=True)
            parcels.write(files, made, self.folder)

    def _tell(self) -> None:
        """What it printed and posted, then its messages, before each the files that it is about."""
        if written := self.host.log.since(self._logged):
            self._logged = self.host.log.written
            self.data.send(packed(Parcel.LOG, written.encode(errors="replace")))
        for rank in self.host.ranks:
            news, known = self.board.news(rank, self._known)
            head = news[: Board.HEAD]  # what it is at may change without a collective
            if (known, head) != (self._known, self._head):
                self._known, self._head = known, head
                self.data.send(packed(Parcel.BOARD, rank.to_bytes(4, "big") + news))
        while (body := self.host.take_body()) is not None:
            self._close_memory()  # it is there, as its first word says
            if self.watched:
                self.data.send(parcels.of_files([Path(path) for path in self.watched], []))
            self.data.send(packed(Parcel.DATA, wire.with_header(body)))

    def _close_memory(self) -> None:
        if self.memory is not None:
            close_to_others(self.memory)
            os.close(self.memory)
            self.memory = None

    def _forget_files(self) -> None:
        """Those of the last case; the next has others, under other names."""
        for name in self._given:
            folders.remove(Path(name))
        self._given = []
