"""`os._exit` in code under test: in the driver it would end the run without a word, and with an
exit code of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from os import _exit, getpid
from typing import NoReturn


@contextlib.contextmanager
def refused(*, for_good: bool = False) -> Iterator[None]:
    """In the block `os._exit` raises `SystemExit`, in this process; one that is forked from it ends
    by it.

    Args:
        for_good: the process ends with the block. What calls `os._exit` while it does (functions of
            `atexit`) ends it with the code that the block has ended it with.
    """
    own, before = getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if getpid() != own:
            _exit(status)
        raise SystemExit(status)

    def end(status: int) -> NoReturn:
        if getpid() != own:
            _exit(status)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        _exit(code)

    code = 0
    os._exit = refuse
    try:
        yield
    except BaseException as error:
        code = _code_of(error)
        raise
    finally:
        os._exit = end if for_good else before


def _code_of(error: BaseException) -> int:
    """What Python ends with where this leaves a program."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)
