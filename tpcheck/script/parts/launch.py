"""Ranks: by torchrun, or by this file itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from datetime import timedelta

import torch.distributed as dist


def ranks(count: int) -> None:
    """Joins the ranks that torchrun has started; started without it, starts them and ends with
    their exit code."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    started = []
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), **where}
        started.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own}))
    while all(process.poll() in (None, 0) for process in started):
        if all(process.poll() == 0 for process in started):
            sys.exit(0)
        time.sleep(0.05)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(process.poll() is None for process in started):
        time.sleep(0.05)
    for process in started:
        process.kill()
    codes = [process.wait() for process in started]
    sys.exit(1 if 1 in codes else 2)


def leave(status: int) -> None:
    """Ends this rank at once: its threads for collectives may still wait for one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
