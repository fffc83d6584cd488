"""What a process has around it, left changed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
import threading
import time
from typing import Any

from tests.catalogue.torture.fault import GLOO, Effect, Here, kind


@kind(
    Effect.LEAVES,
    "RANK",
    "OMP_NUM_THREADS",
    "PATH",
    "PYTHONPATH",
    "NEW",
    "LD_PRELOAD",
    "GLOO_SOCKET_IFNAME",
)
def environment_set(here: Here) -> None:
    """Sets a variable of the environment."""
    os.environ[here.variant] = "/nowhere"


@kind(Effect.LEAVES)
def environment_emptied(here: Here) -> None:
    """Empties the environment."""
    os.environ.clear()


@kind(Effect.LEAVES)
def environment_behind_python(here: Here) -> None:
    """Sets a variable where Python does not see it."""
    os.putenv("TORCH_CPP_LOG_LEVEL", "INFO")


@kind(Effect.LEAVES, "/", "/proc/self")
def folder_changed(here: Here) -> None:
    """Goes to another folder."""
    os.chdir(here.variant)


@kind(Effect.LEAVES)
def folder_removed(here: Here) -> None:
    """Goes to a folder, and removes it."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


@kind(Effect.LEAVES, 0o777, 0o000)
def umask(here: Here) -> None:
    """Sets the mask of new files' rights."""
    os.umask(here.variant)


_NUMBERS = ("TERM", "USR1", "USR2", "INT", "HUP", "CHLD", "PIPE", "ALRM")


@kind(Effect.LEAVES, *_NUMBERS, engines=GLOO)
def a_signal_ignored(here: Here) -> None:
    """Ignores a signal."""
    signal.signal(getattr(signal, f"SIG{here.variant}"), signal.SIG_IGN)


@kind(Effect.LEAVES, *_NUMBERS, engines=GLOO)
def a_signal_handled(here: Here) -> None:
    """Leaves a handler that raises."""

    def handler(number: int, frame: Any) -> None:
        raise ValueError("deliberate: a handler that was left")

    signal.signal(getattr(signal, f"SIG{here.variant}"), handler)


@kind(Effect.LEAVES)
def signals_blocked(here: Here) -> None:
    """Blocks every signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@kind(Effect.LEAVES, engines=GLOO)
def a_signal_is_waiting(here: Here) -> None:
    """Blocks a signal that ends it, and sends it: whoever unblocks it, dies."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    # to this thread: of those sent to the process a thread of torch's may be given it, and it ends
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)


@kind(Effect.LEAVES)
def stream_redirected(here: Here) -> None:
    """Puts a file in the place of descriptor 2."""
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)


@kind(Effect.LEAVES)
def time_zone(here: Here) -> None:
    """Sets the time zone."""
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


@kind(Effect.LEAVES, 0x400, 0x800, 0xC00)
def rounding_mode(here: Here) -> None:
    """Has the processor round down, up or to zero."""
    libm = ctypes.CDLL("libm.so.6")
    libm.fesetround(here.variant)


@kind(Effect.LEAVES, engines=GLOO)
def floating_point_traps(here: Here) -> None:
    """Has the processor trap on invalid operations."""
    ctypes.CDLL("libm.so.6").feenableexcept(0x01 | 0x04)


@kind(Effect.LEAVES, {0}, {1})
def processors(here: Here) -> None:
    """Pins itself to a processor."""
    os.sched_setaffinity(0, here.variant & os.sched_getaffinity(0) or {0})


@kind(Effect.LEAVES, "BATCH", "IDLE")
def scheduling(here: Here) -> None:
    """Lowers how it is scheduled."""
    os.sched_setscheduler(0, getattr(os, f"SCHED_{here.variant}"), os.sched_param(0))


@kind(Effect.LEAVES)
def dies_with_nobody(here: Here) -> None:
    """Is no longer killed with its parent."""
    ctypes.CDLL(None).prctl(1, 0)


@kind(Effect.LEAVES)
def cannot_be_looked_at(here: Here) -> None:
    """Makes itself undumpable: others may not read its environment."""
    ctypes.CDLL(None).prctl(4, 0)


@kind(Effect.LEAVES)
def another_name(here: Here) -> None:
    """Changes the name of the process."""
    ctypes.CDLL(None).prctl(15, b") Z 1 1 \xff\n")


@kind(Effect.LEAVES)
def another_group(here: Here) -> None:
    """Has a child in a process group of its own, and joins it."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        time.sleep(5)
        os._exit(0)
    time.sleep(0.05)
    with contextlib.suppress(OSError):  # a session's leader may not
        os.setpgid(0, child)


@kind(Effect.LEAVES)
def new_user(here: Here) -> None:
    """Gives its rights away."""
    if os.getuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)


@kind(Effect.LEAVES)
def core_files(here: Here) -> None:
    """Allows core files."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
