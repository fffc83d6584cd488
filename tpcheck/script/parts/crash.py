"""A fault that ends the process: seen from another one."""

from __future__ import annotations

import atexit
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


def seen_from_outside() -> None:
    """Runs this file in a process of its own; returns in that one."""
    if "here" in sys.argv:
        atexit.register(Path(sys.argv[-1]).touch)  # what ends the process at once leaves it out
        return
    with tempfile.TemporaryDirectory() as folder:
        end = Path(folder) / "end"
        status = subprocess.run([sys.executable, __file__, "here", str(end)]).returncode
        if status < 0:
            print(f"WRONG: the process is killed by {signal.Signals(-status).name}")
        elif not end.exists():
            print(f"WRONG: the process ends itself, with exit code {status}")
        sys.exit(status if status >= 0 and end.exists() else 1)
