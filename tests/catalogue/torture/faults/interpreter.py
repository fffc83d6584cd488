"""What the Python interpreter and its libraries are set to, left changed."""

from __future__ import annotations

import codecs
import copyreg
import decimal
import faulthandler
import gc
import io
import locale
import logging
import os
import signal
import socket
import sys
import threading
import tracemalloc
import warnings
from typing import Any

import numpy as np

from tests.catalogue.torture.fault import ANY, AT_THE_END, Effect, Here, Place, kind
from tpcheck.protocol.messages import RankReport

#: On import, too: it holds for the candidate, and for nothing else of its file.
_AT_IMPORT_TOO = (*AT_THE_END, Place.IMPORT)


@kind(Effect.LEAVES, "stdout", "stderr", "stdin", at=_AT_IMPORT_TOO)
def streams_replaced(here: Here) -> None:
    """Replaces a standard stream of Python's."""
    setattr(sys, here.variant, io.StringIO())


@kind(Effect.LEAVES, "stdout", "stderr", at=_AT_IMPORT_TOO)
def streams_taken_away(here: Here) -> None:
    """Sets a standard stream to None."""
    setattr(sys, here.variant, None)


@kind(Effect.LEAVES, "disable", "freeze", "debug", "threshold")
def collector_settings(here: Here) -> None:
    """Switches the garbage collector off, or has it keep what it finds."""
    if here.variant == "debug":
        gc.set_debug(gc.DEBUG_SAVEALL)
    elif here.variant == "threshold":
        gc.set_threshold(1)
    else:
        getattr(gc, here.variant)()


@kind(Effect.LEAVES, 60, 10**6, at=_AT_IMPORT_TOO)
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
def decimal_context(here: Here) -> None:
    """Lowers decimal's precision."""
    decimal.getcontext().prec = 1


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
        handler.emit = lambda record: os._exit(0)
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
    codecs.register_error("replace", lambda error: ("", error.end))
