"""What a process has around it, left changed."""

from __future__ import annotations

import codecs
import copyreg
import ctypes
import decimal
import faulthandler
import gc
import io
import locale
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from typing import Any

import numpy as np

from tests.catalogue.torture.fault import ANY, GLOO, Effect, Here, Place, kind
from tpcheck.protocol.messages import RankReport


@kind(Effect.LEAVES, "RANK", "OMP_NUM_THREADS", "PATH", "PYTHONPATH", "NEW", "LD_PRELOAD")
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
    os.kill(os.getpid(), signal.SIGUSR2)


@kind(Effect.LEAVES, "stdout", "stderr", "stdin")
def streams_replaced(here: Here) -> None:
    """Replaces a standard stream of Python's."""
    setattr(sys, here.variant, io.StringIO())


@kind(Effect.LEAVES, "stdout", "stderr")
def streams_taken_away(here: Here) -> None:
    """Sets a standard stream to None."""
    setattr(sys, here.variant, None)


@kind(Effect.LEAVES)
def stream_redirected(here: Here) -> None:
    """Puts a file in the place of descriptor 2."""
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)


@kind(Effect.LEAVES, "disable", "freeze", "debug", "threshold")
def collector_settings(here: Here) -> None:
    """Switches the garbage collector off, or has it keep what it finds."""
    if here.variant == "debug":
        gc.set_debug(gc.DEBUG_SAVEALL)
    elif here.variant == "threshold":
        gc.set_threshold(1)
    else:
        getattr(gc, here.variant)()


@kind(Effect.LEAVES, 60, 10**6)
def recursion_limit(here: Here) -> None:
    """Sets the limit of recursion."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(max(here.variant, depth + 40))


@kind(Effect.LEAVES, 1e-6, 100.0)
def switch_interval(here: Here) -> None:
    """Sets how long a thread keeps the interpreter."""
    sys.setswitchinterval(here.variant)


@kind(Effect.LEAVES, "empty", "first")
def import_path(here: Here) -> None:
    """Empties the path of modules, or puts a folder first."""
    if here.variant == "empty":
        sys.path.clear()
    else:
        sys.path.insert(0, "/nowhere")


class _Refuses:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        raise ImportError(f"deliberate: {name}")


@kind(Effect.LEAVES, "first", "only", "none")
def importers(here: Here) -> None:
    """Leaves an importer that refuses everything, or none at all."""
    if here.variant != "first":
        sys.meta_path.clear()
    if here.variant != "none":
        sys.meta_path.insert(0, _Refuses())


@kind(Effect.LEAVES)
def import_caches(here: Here) -> None:
    """Empties the caches of importers."""
    sys.path_importer_cache.clear()
    sys.path_hooks.clear()


@kind(Effect.LEAVES, "excepthook", "displayhook", "unraisablehook", "breakpointhook")
def hooks_of_python(here: Here) -> None:
    """Replaces a hook of the interpreter."""
    setattr(sys, here.variant, lambda *args: os._exit(0))


@kind(Effect.LEAVES, "error", "always")
def warning_filters(here: Here) -> None:
    """Makes every warning an error."""
    warnings.simplefilter(here.variant)


@kind(Effect.LEAVES, "C", "C.UTF-8", "POSIX")
def locale_(here: Here) -> None:
    """Sets the locale."""
    locale.setlocale(locale.LC_ALL, here.variant)


@kind(Effect.LEAVES)
def time_zone(here: Here) -> None:
    """Sets the time zone."""
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


@kind(Effect.LEAVES)
def decimal_context(here: Here) -> None:
    """Lowers decimal's precision."""
    decimal.getcontext().prec = 1


@kind(Effect.LEAVES, 0x400, 0x800, 0xC00)
def rounding_mode(here: Here) -> None:
    """Has the processor round down, up or to zero."""
    libm = ctypes.CDLL("libm.so.6")
    libm.fesetround(here.variant)


@kind(Effect.LEAVES, engines=GLOO)
def floating_point_traps(here: Here) -> None:
    """Has the processor trap on invalid operations."""
    ctypes.CDLL("libm.so.6").feenableexcept(0x01 | 0x04)


@kind(Effect.LEAVES)
def numpy_errors(here: Here) -> None:
    """Has numpy raise where numbers overflow."""
    np.seterr(all="raise")


@kind(Effect.LEAVES)
def default_timeout(here: Here) -> None:
    """Sets the timeout of new sockets."""
    socket.setdefaulttimeout(0.001)


@kind(Effect.LEAVES, "disable", "handler")
def logging_(here: Here) -> None:
    """Switches logging off, or leaves a handler that raises."""
    if here.variant == "disable":
        logging.disable(logging.CRITICAL)
    else:
        handler = logging.Handler()
        handler.emit = lambda record: os._exit(0)  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)


@kind(Effect.LEAVES)
def fault_handler(here: Here) -> None:
    """Switches the handler of faults off, and that of stacks."""
    faulthandler.disable()
    faulthandler.unregister(signal.SIGUSR1)


@kind(Effect.LEAVES)
def fault_handler_later(here: Here) -> None:
    """Has the handler of faults end the process in two seconds."""
    faulthandler.dump_traceback_later(2, exit=True)


@kind(Effect.LEAVES)
def memory_tracing(here: Here) -> None:
    """Traces memory."""
    tracemalloc.start(5)


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
def another_session(here: Here) -> None:
    """Moves to the zygote's process group."""
    os.setpgid(0, 0) if os.getpid() != os.getpgid(0) else os.umask(os.umask(0o022))


@kind(Effect.LEAVES)
def new_user(here: Here) -> None:
    """Gives its rights away."""
    if os.getuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)


@kind(Effect.LEAVES)
def stack_of_threads(here: Here) -> None:
    """Sets a tiny stack for new threads."""
    threading.stack_size(32768 * 2)


@kind(Effect.MEDDLES, at=(Place.FINALIZE, Place.DESTRUCTOR), expects=ANY)
def pickled_otherwise(here: Here) -> None:
    """Registers how reports are pickled."""
    copyreg.pickle(RankReport, lambda report: (RankReport, (report.rank,)))


@kind(Effect.LEAVES)
def codec_errors(here: Here) -> None:
    """Replaces what happens to characters that can't be encoded."""
    codecs.register_error("replace", lambda error: ("", error.end))  # type: ignore[attr-defined]


@kind(Effect.LEAVES)
def core_files(here: Here) -> None:
    """Allows core files."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
