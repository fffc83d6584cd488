"""A fault that ends the process: seen from another one."""

from __future__ import annotations

import signal
import subprocess
import sys


def seen_from_outside() -> None:
    """Runs this file in a process of its own; returns in that one."""
    if "here" in sys.argv:
        return
    status = subprocess.run([sys.executable, __file__, "here"]).returncode
    if status < 0:
        print(f"WRONG: the process is killed by {signal.Signals(-status).name}")
    sys.exit(1 if status < 0 else status)
