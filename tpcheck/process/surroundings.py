"""What a process has around it: environment, folder, limits, signals, threads, children."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from tpcheck.process import environment
from tpcheck.process.after_import import After
from tpcheck.process.aspects import Aspect
from tpcheck.process.children import children

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_STANDARD = (0, 1, 2)
#: What the standard descriptors were, by device and inode → a descriptor of it. Above those that
#: code may count on to be the next free ones.
_kept: dict[tuple[int, int], int] = {}
_ABOVE = 100
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def folder() -> str | None:
    with contextlib.suppress(OSError):  # it may be gone
        return os.getcwd()
    return None


def set_folder(value: str | None) -> None:
    if value is not None:
        os.chdir(value)


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def search_path() -> list[str]:
    """Where modules are looked for."""
    return list(sys.path)


def set_search_path(value: list[str]) -> None:
    sys.path[:] = value


def _finders() -> list[Any]:
    others = (finder for finder in sys.meta_path if type(finder) is not After)
    return list(others)  # those of tpcheck go by themselves


def _set_finders(value: list[Any]) -> None:
    sys.meta_path[:] = [*(finder for finder in sys.meta_path if type(finder) is After), *value]


def _with_more(before: list[Any], now: list[Any]) -> list[Any]:
    """What modules have made of a list when they were imported: they add to it."""
    return now if all(one in now for one in before) else before


def filters() -> list[Any]:
    """What is done with which warning."""
    return list(warnings.filters)


def set_filters(value: list[Any]) -> None:
    warnings.filters[:] = value  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


@contextlib.contextmanager
def same_filters() -> Iterator[None]:
    """What the block changes of them is put back, but for what modules add. Unlike
    `warnings.catch_warnings`, it does not have every warning told again."""
    before = filters()
    try:
        yield
    finally:
        if filters() != (kept := _with_more(before, calm(before))):
            set_filters(kept)


def calm(before: list[Any]) -> list[Any]:
    """Those of now that make no error of a warning which was none before: modules silence their own
    when they are imported."""
    return [one for one in filters() if one[0] != "error" or one in before]


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, _LIMITS))


def _set_limits(value: tuple[tuple[int, int], ...]) -> None:
    for which, pair in zip(_LIMITS, value, strict=True):
        resource.setrlimit(which, pair)


def _handlers() -> list[Any]:
    return [signal.getsignal(number) for number in _SIGNALS]


def _set_handlers(value: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, value, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)  # raises where it was not Python's, or not in a thread


def pending() -> tuple[bool, ...]:
    """Whether each timer runs: of one that does the time changes by itself. Between its end and the
    signal that starts it again, one of an interval has no time left."""
    return tuple(any(signal.getitimer(timer)) for timer in _TIMERS)


def _set_mask(value: set[signal.Signals]) -> None:
    """Signals that wait would come, and end the process, as soon as they are let through."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - set(value)
    while waiting := signal.sigpending() & blocked:
        signal.sigtimedwait(waiting, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, value)


def _stop_timers(value: tuple[bool, ...]) -> None:
    for timer, ran in zip(_TIMERS, value, strict=True):
        if not ran:
            signal.setitimer(timer, 0.0)


def _threads() -> dict[str, Any]:
    """The threads that Python started, by name, with their number. Torch's own start when they are
    first needed, and are dummies here; one that a progress bar starts does no harm. Those that run
    Python code and that `threading` does not know have one name."""
    found = threading.enumerate()
    real = [t for t in found if not isinstance(t, threading._DummyThread)]
    own = [t for t in real if type(t).__module__.partition(".")[0] != "tqdm"]
    unknown = set(sys._current_frames()) - {thread.ident for thread in found}
    unnamed = {"_thread.start_new_thread": sorted(unknown)} if unknown else {}
    return {thread.name: thread.ident for thread in own} | unnamed


def _children() -> dict[str, list[int]]:
    """What child processes are called → their numbers."""
    found: dict[str, list[int]] = {}
    for number, name in children().items():
        found.setdefault(name, []).append(number)
    return found


def _streams() -> tuple[Any, ...]:
    return (sys.stdin, sys.stdout, sys.stderr, *map(_file, _STANDARD))


def _set_streams(value: tuple[Any, ...]) -> None:
    """The descriptors as well, of those files that have been kept open (`keep_streams`)."""
    sys.stdin, sys.stdout, sys.stderr, *files = value
    for descriptor, file in zip(_STANDARD, files, strict=True):
        if _file(descriptor) != file and file in _kept:
            os.dup2(_kept[file], descriptor)


def keep_streams() -> None:
    """Keeps what is behind the standard descriptors open, so that they can be put back."""
    for descriptor in _STANDARD:
        file = _file(descriptor)
        if file is not None and file not in _kept:
            _kept[file] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)


def _file(descriptor: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    return None


def _collecting(value: bool) -> None:
    (gc.enable if value else gc.disable)()


_FINDERS = Aspect(
    "sys.meta_path",
    _finders,
    _set_finders,
    kept=lambda before, _: _with_more(before, _finders()),
)
_HANDLERS = Aspect("signal.getsignal", _handlers, _set_handlers)
_LIMITS_OF_PROCESS = Aspect("resource.getrlimit", _limits, _set_limits)
_RECURSION = Aspect("sys.getrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit)
_ENVIRONMENT = Aspect(
    "os.environ",
    environment.read,
    environment.write,
    kept=lambda before, modules: environment.kept(before),
)


def settings() -> list[Aspect]:
    """What code of a library may set in a process that is not its own."""
    return [
        _ENVIRONMENT,
        Aspect("os.getcwd", folder, set_folder),
        Aspect("os.umask", umask, os.umask),
        Aspect(
            "sys.path",
            search_path,
            set_search_path,
            kept=lambda before, _: _with_more(before, search_path()),
        ),
        _FINDERS,
    ]


def streams() -> list[Aspect]:
    """Where the driver prints: without it no verdict is seen."""
    return [Aspect("sys.stdout", _streams, _set_streams), _LIMITS_OF_PROCESS]


def imported() -> list[Aspect]:
    """What a file may set for good when it is imported, and all that runs after it would have."""
    return [
        _RECURSION,
        Aspect("sys.stdout", _streams, _set_streams),
        _LIMITS_OF_PROCESS,
        _HANDLERS,
        _FINDERS,
    ]


def interpreter() -> list[Aspect]:
    """What the interpreter is set to; in the driver Hypothesis and debuggers set it, too."""
    return [
        _RECURSION,
        Aspect("sys.getswitchinterval", sys.getswitchinterval, sys.setswitchinterval),
        Aspect("gc.isenabled", gc.isenabled, _collecting),
        Aspect("sys.settrace", sys.gettrace, sys.settrace, of_thread=True),
        Aspect("sys.setprofile", sys.getprofile, sys.setprofile, of_thread=True),
    ]


def resources() -> list[Aspect]:
    """What a process holds, and what may still happen to it."""
    found = [
        _LIMITS_OF_PROCESS,
        Aspect("signal.getitimer", pending, _stop_timers),  # before what they call goes
        _HANDLERS,
        Aspect(
            "signal.pthread_sigmask",
            lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            _set_mask,
            of_thread=True,
        ),
        Aspect("threading.enumerate", _threads),
        Aspect("a child process", _children),
        Aspect("sys.stdout", _streams),
        Aspect("faulthandler.is_enabled", faulthandler.is_enabled),
    ]
    if hasattr(os, "sched_getaffinity"):
        found.append(
            Aspect(
                "os.sched_getaffinity",
                lambda: os.sched_getaffinity(0),
                lambda value: os.sched_setaffinity(0, value),
                of_thread=True,
            )
        )
    return found
