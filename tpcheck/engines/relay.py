"""What stands for a host on another machine: a process of ours that passes on what it says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tpcheck.comms.board import Board
from tpcheck.engines.hosts import readable
from tpcheck.errors import EngineUnavailable
from tpcheck.process.lineage import die_with
from tpcheck.protocol import parcels
from tpcheck.protocol.parcels import Broken, Parcel, Wire, packed

#: The exit code of a relay whose agent is gone: nobody knows how the host ended.
_GONE = 217


@dataclass
class Relay:
    """What stands for a host: a process that is forked once its agent has dialled.

    Args:
        connection, log, board: descriptors of its own.
        size: of the world.
        of: the world's name.
    """

    connection: socket.socket
    log: int
    board: int
    size: int
    of: str
    data: Wire | None = None
    pid: int = 0
    _status: int | None = None

    def begin(self, deadline: float, folder: Path) -> bool:
        """Waits until the host is there, and passes on from then; whether it sees our files."""
        assert self.data is not None
        try:
            while True:
                kind, body = self.data.next(max(0.1, deadline - time.monotonic()))
                if kind is Parcel.FAILED:
                    raise EngineUnavailable(body.decode(errors="replace"))
                if kind is Parcel.STARTED:
                    self._fork(folder)
                    return bool(json.loads(body)["shared"])
        except Broken as error:
            raise EngineUnavailable(f"engine 'torchrun': its agent is gone: {error}") from None

    def status(self) -> int | None:
        """How the host ended: its relay ends likewise."""
        if self._status is None and self.pid:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(self.pid, 0)
                self._status = os.waitstatus_to_exitcode(status)
        return None if self._status == _GONE else self._status

    def end(self) -> None:
        """Ends the process, and with it the host."""
        if self.pid and self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.status()
        elif not self.pid:
            self._close()

    def _fork(self, folder: Path) -> None:
        own, board = os.getpid(), Board(self.board, self.size)
        self.pid = os.fork()
        if self.pid:
            self._close()
            return
        assert self.data is not None
        try:
            die_with(own)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            _pass_on(self.data, self.connection, self.log, board, folder)
        finally:
            os._exit(_GONE)

    def _close(self) -> None:
        self.connection.close()
        os.close(self.log)
        os.close(self.board)
        if self.data is not None:
            self.data.connection.close()


def _pass_on(
    data: Wire, connection: socket.socket, log: int, board: Board, folder: Path
) -> NoReturn:
    """What a relay does: the driver's bytes are parcels already."""
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    remote = data.connection
    while True:
        if not data.waiting:
            ready = readable([remote.fileno(), connection.fileno(), wakes], 3600.0)
            if wakes in ready:
                os.read(wakes, 512)
                data.send(packed(Parcel.STACKS))
            if connection.fileno() in ready:
                out = connection.recv(1 << 20)
                if not out:
                    os._exit(0)
                data.send(out)
            if remote.fileno() in ready:
                data.waiting += data.read()
        for kind, body in data.waiting:
            match kind:
                case Parcel.DATA:
                    connection.sendall(body)
                case Parcel.LOG:
                    os.write(log, body)
                case Parcel.BOARD:
                    board.take(int.from_bytes(body[:4], "big"), body[4:])
                case Parcel.FILES:
                    files, made, _ = parcels.unpacked(body)
                    parcels.write(files, made, folder)
                case Parcel.ENDED:
                    _end_likewise(json.loads(body)["status"])
        data.waiting.clear()


def _end_likewise(status: int | None) -> NoReturn:
    if status is not None and status < 0:
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(_GONE if status is None else status)
