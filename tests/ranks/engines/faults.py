"""What a candidate may do to the process that runs it, and to those around it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests import candidates
from tpcheck.check import Check
from tpcheck.protocol import wire
from tpcheck.protocol.messages import Ended, Learned, RankReport, Ready

FOREVER = 60.0


def check(fault: Callable[[], None]) -> Check:
    """A row linear whose last rank does it before its all-reduce."""

    class Faulty(candidates.Row):
        def misbehave(self, partial: torch.Tensor) -> None:
            fault()

    return candidates.check(Faulty)


def own_socket() -> socket.socket:
    """The host's socket to the driver: the one of the Unix family."""
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            found = socket.socket(fileno=os.dup(descriptor))
            if found.family == socket.AF_UNIX:
                return found
    raise AssertionError("no socket")


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]


def real_time_signal() -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 6)
    time.sleep(FOREVER)


def end_with_a_log(path: str, text: str) -> None:
    """As a watchdog does, once a tool that watches kernels has written of one."""
    with open(path, "a") as log:
        log.write(text)
    os.abort()


def write_to_every_descriptor() -> None:
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0\0\0\x10")  # a length, and no message
    time.sleep(FOREVER)


def send_what_runs_code() -> None:
    own_socket().sendall(wire.framed(_Exits()))
    time.sleep(FOREVER)


class _Exits:
    def __reduce__(self) -> Any:
        return os._exit, (0,)


def announce_a_giant_message() -> None:
    own_socket().sendall(wire.framed(0)[:8] + (2**60).to_bytes(8, "big"))
    time.sleep(FOREVER)


def speak_of_other_things() -> None:
    for message in (Ready(1), Learned("x", None), 7, None, Ended(10**6, 1, RankReport(1))):
        own_socket().sendall(wire.framed(message))


def close_its_socket() -> None:
    own_socket().shutdown(socket.SHUT_RDWR)
    time.sleep(FOREVER)


def leave_a_child_with_its_socket() -> None:
    daemon()
    os.kill(os.getpid(), signal.SIGKILL)


def daemon() -> None:
    """A process in a session of its own, and no child of the rank's."""
    between = os.fork()
    if between == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(FOREVER)
        os._exit(0)
    os.waitpid(between, 0)


def let_a_child_go_on() -> None:
    os.fork()


def remove_the_folder_of_the_run() -> None:
    shutil.rmtree(_folder())
    raise ValueError("deliberate")


def leave_a_file() -> None:
    (_folder() / "large").write_bytes(b"x" * 2**20)


def _folder() -> Path:
    return next(Path("/dev/shm").glob(os.environ["TPCHECK_INSIDE_A_RANK"]))


def kill_the_zygote() -> None:
    daemon()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(FOREVER)


def stop_the_zygote() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    raise ValueError("deliberate")


def signal_its_group() -> None:
    os.kill(0, signal.SIGKILL)
    time.sleep(FOREVER)


def print_without_end() -> None:
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        os.write(1, b"x" * 2**20)
    print("and this is the end", flush=True)
    os._exit(3)
