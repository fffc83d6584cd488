"""How messages go over a host's socket: framed, so that stray bytes are told from a message, and
unpickled on the driver's side without trust, since a candidate shares the host's process.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import pickle
import socket
import struct
import sys
from typing import Any

import cloudpickle

from tpcheck.axes import Axis

#: Bytes of one message, at most. A longer one is taken for garbage: a report of a rank has
#: evidence and a trace, a few megabytes where a case runs ten thousand collectives.
LIMIT = 256 * 2**20

_HEADER = struct.Struct(">8sQ")
_MARK = b"tpcheck\n"
#: What of Python's own a message is made of, besides what pickle knows without a name.
_PLAIN = {"set", "frozenset", "complex", "bytearray", "range", "slice"}


class Garbled(Exception):
    """What came over the socket is not a message."""


def framed(message: Any) -> bytes:
    """A message with its header, as it is sent."""
    return with_header(cloudpickle.dumps(message))


def with_header(body: bytes) -> bytes:
    """A pickled message, as it is sent."""
    return _HEADER.pack(_MARK, len(body)) + body


class Inbox:
    """Bytes as they come, and the whole messages among them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> bytes | None:
        """The next message, pickled; None where it has not come whole yet.

        Raises:
            Garbled: what came is the beginning of no message.
        """
        if not self._bytes.startswith(_MARK[: len(self._bytes)]):
            raise Garbled
        if len(self._bytes) < _HEADER.size:
            return None
        _, length = _HEADER.unpack_from(self._bytes)
        if length > LIMIT:
            raise Garbled
        end = _HEADER.size + length
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_HEADER.size : end])
        del self._bytes[:end]
        return body


def receive(connection: socket.socket, inbox: Inbox) -> Any:
    """The driver's next message, which is trusted; waits for it.

    Raises:
        EOFError: the driver has gone.
    """
    while (body := inbox.take()) is None:
        data = connection.recv(1 << 16)
        if not data:
            raise EOFError
        inbox.feed(data)
    return cloudpickle.loads(body)


def unpickled(body: bytes) -> Any:
    """A message from a host: data of tpcheck's own classes; nothing that would run code.

    Raises:
        Garbled: it is anything else.
    """
    try:
        return _Unpickler(io.BytesIO(body)).load()
    except Exception as error:
        raise Garbled from error


def _member(of: object, name: object) -> Any:
    """Of one of our enums: so early releases of Python 3.11 pickle it, as Debian 12's."""
    if not (isinstance(of, type) and issubclass(of, enum.Enum) and isinstance(name, str)):
        raise Garbled
    return of[name]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" and name in _PLAIN:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _member
        found = getattr(sys.modules.get(module), name, None)
        is_data = isinstance(found, type) and (
            dataclasses.is_dataclass(found) or issubclass(found, (enum.Enum, Axis))
        )
        if not is_data or not module.startswith("tpcheck."):
            raise Garbled
        return found
