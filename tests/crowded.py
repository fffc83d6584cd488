"""A machine that has more to do than it can."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def processors() -> Iterator[None]:
    """Three other processes for each processor that this one may use."""
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop) for _ in range(3 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
