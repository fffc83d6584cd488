"""Code under test that ends the driver: by `os._exit`, or with another program in its place. The
run would end without a word, and with an exit code of its own."""

from __future__ import annotations

import contextlib
import os
import posix
import sys
import threading
import time
from collections.abc import Callable, Iterator
from os import _exit, getpid
from typing import Any, NoReturn

#: Where Python has the functions that end a process at once.
_ENDING = ((os, "_exit"), (posix, "_exit"))
#: Where it has those that put another program in its place; `os.execl` and the like call them.
_REPLACING = tuple((module, name) for module in (os, posix) for name in ("execv", "execve"))
#: Seconds that threads which code under test has left have to end, once all is told.
GRACE = 5.0


@contextlib.contextmanager
def refused(*, for_good: bool = False) -> Iterator[None]:
    """In the block what would end this process raises `SystemExit`; one that is forked from it ends
    by it, or becomes the other program.

    Args:
        for_good: the process ends with the block. What calls `os._exit` while it does (functions of
            `atexit`) ends it with the code that the block has ended it with, and so does a thread
            that does not end.
    """
    own, ending = getpid(), False
    before = [(module, name, getattr(module, name)) for module, name in (*_ENDING, *_REPLACING)]

    def end(status: int) -> NoReturn:
        if getpid() != own:
            _exit(status)
        if not ending:
            raise SystemExit(status)
        _leave(code)

    def replaced(function: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
        def replace(*given: Any) -> NoReturn:
            if getpid() != own:
                function(*given)
            if not ending:
                raise SystemExit(f"the process would have become {given[0]!r}")
            _leave(code)

        return replace

    code = 0
    for module, name in _ENDING:
        setattr(module, name, end)
    for module, name in _REPLACING:
        setattr(module, name, replaced(getattr(module, name)))
    try:
        yield
    except BaseException as error:
        code = _code_of(error)
        raise
    finally:
        if for_good:
            ending = True
            _end_without_threads(code)
        else:
            for module, name, function in before:
                setattr(module, name, function)


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _exit(code)


def _end_without_threads(code: int) -> None:
    """Python waits for every thread that is not a daemon; not for one that does not end."""
    left = [t for t in threading.enumerate() if t is not threading.current_thread()]
    names = [thread.name for thread in left if not thread.daemon]
    if names:
        threading.Thread(target=_end, args=(names, code), daemon=True).start()


def _end(names: list[str], code: int) -> NoReturn:
    time.sleep(GRACE)
    with contextlib.suppress(Exception):
        print(
            f"tpcheck: threads of code under test do not end, and are left: {', '.join(names)}",
            file=sys.stderr,
        )
    _leave(code)


def _code_of(error: BaseException) -> int:
    """What Python ends with where this leaves a program."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)
