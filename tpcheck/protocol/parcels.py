"""How driver and agents on other hosts talk over TCP: parcels. A connection carries what goes on a
host's socket, its output, its part of the board and the files of a case, each as it comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path

_HEADER = struct.Struct(">8sBQ")
_MARK = b"tpagent\n"
#: Bytes of one parcel, at most: a case's files go in one.
LIMIT = 1 << 34
_CHUNK = 1 << 20
#: When the system takes a silent connection for dead: after some 30 seconds, in which the other
#: machine's system has not answered. With less, a switch that is started anew would end a run.
_KEEPS = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


class Parcel(IntEnum):
    """What a parcel holds."""

    HELLO = 0  # JSON: who dials, and why
    START = 1  # JSON: a host process is to be started
    STARTED = 2
    FAILED = 3  # why it was not
    DATA = 4  # of the host's socket
    LOG = 5  # of its output
    BOARD = 6  # news of its ranks' part
    FILES = 7
    STACKS = 8  # asks for its Python stacks
    ENDED = 9  # JSON: how it ended
    PING = 10
    PONG = 11
    BYE = 12


class Broken(Exception):
    """What comes over a connection is no parcel, or nothing comes any more."""


def packed(kind: Parcel, body: bytes = b"") -> bytes:
    """A parcel as it is sent."""
    return _HEADER.pack(_MARK, kind, len(body)) + body


def in_json(kind: Parcel, **what: object) -> bytes:
    """One whose body is JSON."""
    return packed(kind, json.dumps(what).encode())


class Inbox:
    """Bytes as they come, and the whole parcels among them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def parcels(self) -> Iterator[tuple[Parcel, bytes]]:
        """Those that have come whole.

        Raises:
            Broken: what came is the beginning of none.
        """
        while len(self._bytes) >= _HEADER.size:
            mark, kind, length = _HEADER.unpack_from(self._bytes)
            if mark != _MARK or length > LIMIT or kind not in Parcel._value2member_map_:
                raise Broken("it sent something else than tpcheck does")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield Parcel(kind), body


class Wire:
    """One end of a connection, which waits."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self._inbox = connection, Inbox()
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPS.items():
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self.waiting: list[tuple[Parcel, bytes]] = []

    def send(self, parcel: bytes) -> None:
        """
        Raises:
            Broken: the other end is gone.
        """
        try:
            self.connection.sendall(parcel)
        except OSError as error:
            raise Broken(str(error)) from None

    def read(self) -> list[tuple[Parcel, bytes]]:
        """What comes next: waits for some bytes, which may hold no whole parcel yet.

        Raises:
            Broken: nothing comes any more.
        """
        try:
            data = self.connection.recv(_CHUNK)
        except OSError as error:
            raise Broken(str(error)) from None
        if not data:
            raise Broken("its connection is closed")
        self._inbox.feed(data)
        return list(self._inbox.parcels())

    def next(self, seconds: float) -> tuple[Parcel, bytes]:
        """One parcel; those that came with it are there for the next call.

        Raises:
            Broken: none comes within so many seconds.
        """
        deadline = time.monotonic() + seconds
        try:
            while not self.waiting:
                self.connection.settimeout(max(1e-3, deadline - time.monotonic()))
                self.waiting += self.read()
        finally:
            with contextlib.suppress(OSError):
                self.connection.setblocking(True)
        return self.waiting.pop(0)

    def expect(self, kind: Parcel, seconds: float) -> bytes:
        """The next parcel of this kind; others that come before it are dropped.

        Raises:
            Broken: it does not come; between two parcels no more than so many seconds pass.
        """
        while True:
            found, body = self.next(seconds)
            if found is kind:
                return body

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


# ---- files


def of_files(paths: Sequence[Path], watched: Sequence[Path]) -> bytes:
    """A parcel with files, and those below folders.

    Args:
        watched: folders whose files are to come back.
    """
    found = {path: data for root in paths for path, data in _read(root)}
    folders = [str(path) for path in (*paths, *watched) if path.is_dir()]
    about = {
        "files": [[str(path), len(data)] for path, data in found.items()],
        "folders": folders,
        "watched": [str(path) for path in watched],
    }
    return packed(Parcel.FILES, json.dumps(about).encode() + b"\n" + b"".join(found.values()))


def unpacked(body: bytes) -> tuple[dict[str, bytes], list[str], list[str]]:
    """Files by path, folders, and the watched ones."""
    line, _, data = body.partition(b"\n")
    about = json.loads(line)
    files: dict[str, bytes] = {}
    at = 0
    for path, size in about["files"]:
        files[path] = data[at : at + size]
        at += size
    return files, about["folders"], about["watched"]


def write(files: Mapping[str, bytes], folders: Sequence[str], within: Path) -> None:
    """Writes files where they are said to be, which is below `within`: nobody else's.

    Raises:
        Broken: they are elsewhere.
        OSError: they can't be written.
    """
    root = Path(os.path.realpath(within))
    for name in (*folders, *files):
        if not Path(os.path.realpath(os.path.dirname(name))).is_relative_to(root):
            raise Broken(f"it sent the file {name}, which is not of this run")
    for name in folders:
        Path(name).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)


def _read(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Regular files, of which a candidate may have made links or pipes."""
    inside = sorted(root.rglob("*")) if root.is_dir() else [root]
    for path in inside:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    yield path, file.read()
