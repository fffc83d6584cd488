"""What ends a run from outside, before `signals` can hear it: what a verb needs takes a second to
import. Imports what Python has loaded anyway.
"""

from __future__ import annotations

import os
import signal
from os import _exit
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = "tpcheck: interrupted"


def tell() -> None:
    """The line where nothing else is told; not by a stream, which may be half written to."""
    try:  # noqa: SIM105 - contextlib takes a moment to import
        os.write(2, f"{INTERRUPTED}\n".encode())
    except OSError:
        pass


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ends the process there and then: nothing was found yet."""
    tell()
    _exit(128 + number)


def hear() -> None:
    """From here on these signals end the process with a line, until `signals.heard`; those that are
    ignored (`nohup`) stay so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # `errors.ENDING`
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, leave)
