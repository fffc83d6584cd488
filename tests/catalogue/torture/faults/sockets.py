"""Descriptors and what is sent over them: to the driver, to the peers."""

from __future__ import annotations

import os
import pickle
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Any

from tests.catalogue.torture.fault import ANY, GLOO, Effect, Here, Place, kind
from tpcheck.protocol import wire
from tpcheck.protocol.messages import Answered, Ended, Learned, RankReport, Ready
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

_HERE = (Place.BUILD, Place.FORWARD, Place.NODE, Place.FINALIZE)


def sockets(family: int) -> Iterator[int]:
    """This process's descriptors that are sockets of a family."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as found:
                if found.family == family:
                    yield descriptor
        except OSError:
            continue


def _to_driver() -> list[int]:
    return list(sockets(socket.AF_UNIX))


def _send(data: bytes) -> None:
    for descriptor in _to_driver():
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.sendall(data)


@kind(Effect.KILLS, "close", "shutdown", "null", at=_HERE)
def cuts_off_the_driver(here: Here) -> None:
    """Closes its socket to the driver."""
    for descriptor in _to_driver():
        if here.variant == "close":
            os.close(descriptor)
        elif here.variant == "null":
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, descriptor)
        else:
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.shutdown(socket.SHUT_RDWR)


@kind(Effect.KILLS, engines=GLOO, at=(Place.BUILD, Place.FORWARD), everywhere=True)
def cuts_off_its_peers(here: Here) -> None:
    """Closes its sockets to the other ranks."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for descriptor in list(sockets(family)):
            os.close(descriptor)


@kind(Effect.MEDDLES, engines=GLOO, at=(Place.BUILD, Place.FORWARD, Place.FINALIZE))
def sends_its_peers_garbage(here: Here) -> None:
    """Writes bytes on its sockets to the other ranks."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for descriptor in list(sockets(family)):
            try:
                os.write(descriptor, b"\xff" * 64)
            except OSError:
                continue


@kind(Effect.KILLS, at=_HERE)
def closes_every_descriptor(here: Here) -> None:
    """Closes all descriptors, standard streams too."""
    os.closerange(0, 4096)


@kind(Effect.LEAVES, (0,), (1,), (2,), (0, 1, 2))
def closes_standard_streams(here: Here) -> None:
    """Closes descriptors 0, 1 or 2."""
    for descriptor in here.variant:
        os.close(descriptor)


@kind(Effect.LEAVES, 100, 400)
def leaks_descriptors(here: Here) -> None:
    """Opens descriptors and leaves them open."""
    for _ in range(here.variant):
        os.open("/dev/null", os.O_RDONLY)


@kind(Effect.MEDDLES, b"\xff" * 100, b"tpcheck", b"\0", b"x" * 2**20, at=_HERE)
def sends_garbage(here: Here) -> None:
    """Writes bytes that are no message on its socket to the driver."""
    _send(here.variant)


@kind(Effect.MEDDLES, 10, 2**20, 2**62, at=_HERE)
def announces_a_message(here: Here) -> None:
    """Sends the header of a message, and not the message."""
    _send(struct.pack(">8sQ", b"tpcheck\n", here.variant))


class _Raises:
    def __reduce__(self) -> Any:
        return (eval, ("1 / 0",))


class _Exits:
    def __reduce__(self) -> Any:
        return (os._exit, (0,))


_PICKLES: dict[str, Any] = {
    "raises": lambda: _Raises(),
    "exits": lambda: _Exits(),
    "nested": lambda: [_Exits()],
    "unknown": lambda: None,
    "ready": lambda: Ready(1),
    "learned": lambda: Learned("no such candidate", None),
    "answered": lambda: Answered(0, 0, b"", None),
    "late": lambda: Ended(0, 0, RankReport(0)),
    "nobody": lambda: Ended(0, 63, RankReport(63)),
    "empty": lambda: Ended(0, 0, None),
}


@kind(Effect.MEDDLES, *_PICKLES, at=_HERE)
def sends_another_message(here: Here) -> None:
    """Sends the driver a message that is not for it, or that would run code when it is read."""
    body = pickle.dumps(_PICKLES[here.variant]())
    if here.variant == "unknown":
        body = b"cno_such_module\nno_such_class\n."
    _send(struct.pack(">8sQ", b"tpcheck\n", len(body)) + body)


@kind(Effect.MEDDLES, 200, at=_HERE)
def sends_many_messages(here: Here) -> None:
    """Sends the driver thousands of messages that nobody asked for."""
    message = wire.framed(Ready(1)) * 100
    for _ in range(here.variant):
        _send(message)


@kind(Effect.MEDDLES, "crash", "pass", at=(Place.FORWARD,), expects=ANY)
def speaks_for_another_rank(here: Here) -> None:
    """Sends an outcome in another rank's name."""
    outcome: Any = RankReport(0)
    if here.variant == "crash":
        outcome = Mismatch("forged", Kind.OUTPUT, 0)
    for epoch in range(200):
        _send(wire.framed(Ended(epoch, 0, outcome)))


@kind(Effect.HARMLESS, 1, 2)
def prints_without_end(here: Here) -> None:
    """Prints 32 MB."""
    line = b"x" * 2**16
    for _ in range(512):
        os.write(here.variant, line)


@kind(Effect.HARMLESS, b"\x1b[2J\x1b]0;title\x07", b"\xff\xfe\x00" * 100, b"[/red]" * 50)
def prints_what_is_not_text(here: Here) -> None:
    """Prints escape sequences, markup, or what is not UTF-8."""
    os.write(2, here.variant)


@kind(Effect.MEDDLES, at=_HERE)
def makes_its_socket_block(here: Here) -> None:
    """Sets options of its socket to the driver: not to wait, to hold little."""
    for descriptor in _to_driver():
        os.set_blocking(descriptor, False)
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)


@kind(Effect.MEDDLES, at=_HERE)
def reads_the_drivers_messages(here: Here) -> None:
    """Takes what is on its socket from the driver, and shuts that half of it."""
    for descriptor in _to_driver():
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.shutdown(socket.SHUT_RD)
