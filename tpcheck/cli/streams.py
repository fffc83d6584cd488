"""What commands say on the two standard streams. Loads neither torch nor rich.

Printing decides nothing: where stdout can't be written to, a command goes on in silence, writes its
reports and ends with its verdict's exit code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import NoReturn

from tpcheck.report.visible import one_line, visible

BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell says of any program; 1 would mean FAIL


def leave() -> NoReturn:
    """Ends a command that only prints, whose reader has gone (`--help | head -1`)."""
    let_go_of_stdout()
    sys.exit(BROKEN_PIPE)


def complain(message: str) -> None:
    """One line on stderr; where that can't be written to, the exit code must do."""
    with contextlib.suppress(OSError, ValueError):
        print(f"tpcheck: {one_line(message)}", file=sys.stderr, flush=True)


def say_faults(tracebacks: Iterable[str | None]) -> None:
    """Faults of tpcheck's own, each once."""
    for text in dict.fromkeys(tracebacks):
        if text is not None:
            with contextlib.suppress(OSError, ValueError):
                print(visible(text), file=sys.stderr, flush=True)


def can_write_anything() -> None:
    """What stdout and stderr can't encode (`LANG=C`) is spelled out, and nothing is lost. Where a
    standard stream is closed its descriptor is taken: the next socket would get it, and lose it to
    the redirections of the processes that are started."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # it was closed when Python started
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def let_go_of_stdout() -> None:
    """Else the interpreter's last flush of stdout complains, and changes the exit code."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = sys.stdout.fileno()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, descriptor)
        os.close(sink)
