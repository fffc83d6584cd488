"""What counts as standing still, of a host that computes and of one that waits for a processor."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck.engines import standstill
from tpcheck.engines.standstill import Standstill

#: One that computes for ever, on the same processor as `others` more.
LOOPS = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
for _ in range(int(sys.argv[1])):
    if not os.fork(): break
while True: pass
"""
#: Seconds in which a busy machine gives each of two loops a turn.
PATIENCE = 60.0


@contextmanager
def host_that_computes(others: int = 0) -> Iterator[Any]:
    command = [sys.executable, "-c", LOOPS, str(others)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None and child.stdout.readline()
        try:
            yield SimpleNamespace(pid=child.pid)
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(child.pid)], check=True)


def left_out(still: Standstill, since: float, least: float) -> float:
    """Seconds, as soon as they are no less, or when patience is over."""
    found = 0.0
    while found < least and time.monotonic() < since + PATIENCE:
        time.sleep(0.02)
        found = time.monotonic() - since - still.seconds()
    return found


def test_what_a_host_computes_is_left_out_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "MOST", 0.2)
    with host_that_computes() as host:
        since = time.monotonic()
        still = Standstill([host])
        assert left_out(still, since, least=0.15) >= 0.15
        while still.seconds() < 0.3 and time.monotonic() < since + PATIENCE:
            time.sleep(0.02)
        assert still.seconds() >= 0.3, "one that computes for ever stands still in the end"


def test_all_that_a_host_waits_for_a_processor_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "MOST", 0.0)
    with host_that_computes(others=1) as host:
        since = time.monotonic()
        assert left_out(Standstill([host]), since, least=0.3) >= 0.3
