"""A host process as the driver sees it: its connection, its log, its stacks."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

#: Seconds in which a host's faulthandler has written its stacks; a host that takes longer is shown
#: without them.
STACKS_LIMIT = 1.0


@dataclass
class Host:
    """One process that hosts some of the ranks.

    Args:
        parts: the candidates that it has been given.
    """

    index: int
    ranks: list[int]
    connection: Connection
    pid: int
    log: Path
    parts: set[str] = field(default_factory=set)

    def send(self, message: Any) -> None:
        """Sends one message of `protocol.messages`."""
        self.connection.send_bytes(cloudpickle.dumps(message))

    def receive(self) -> Any:
        """The next message, one of `protocol.messages`; waits for it."""
        return cloudpickle.loads(self.connection.recv_bytes())

    def kill(self) -> None:
        """Ends the process at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.connection.close()

    def log_tail(self) -> str:
        """The end of what it printed."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-4000:].strip()
        return ""

    def stacks(self) -> str:
        """The Python stacks of its threads, by its own faulthandler."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + STACKS_LIMIT
        while time.monotonic() < deadline:
            text = self.log.read_bytes()[before:].decode(errors="replace")
            if "(most recent call first)" in text and text.endswith("\n"):
                return text.strip()
            time.sleep(0.02)
        return ""
