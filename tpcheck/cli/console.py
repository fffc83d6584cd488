"""Where commands print. Loads no torch."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from rich.console import Console as RichConsole

BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell says of any program; 1 would mean FAIL


def leave() -> NoReturn:
    """Ends a command whose reader has gone (`| head -1`): neither a verdict nor a traceback."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)  # else the interpreter's last flush of stdout complains
    sys.exit(BROKEN_PIPE)


class Console(RichConsole):
    """Rich's console; on a broken pipe its own would exit with 1."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        leave()


# texts and names of the user's are in it: `[seq]` in them is no markup, `:key:` no emoji
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
