"""Time in which others had the processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tpcheck.process import delays
from tpcheck.process.delays import Delay

#: On one processor, as all of its children.
TWO_THAT_SHARE_ONE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.fork()
print(flush=True)
while True: pass
"""
#: Seconds in which a busy machine gives each of two loops a turn.
PATIENCE = 60.0


def test_the_time_that_a_process_waits_for_its_processor_is_counted() -> None:
    command = [sys.executable, "-c", TWO_THAT_SHARE_ONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() and child.stdout.readline()
            delay, until = Delay(process=child.pid), time.monotonic() + PATIENCE
            while not (first := delay.more()) and time.monotonic() < until:
                time.sleep(0.05)
            assert first >= delays.LEAST
            assert delay.seconds() >= first
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(child.pid)], check=True)


def test_a_thread_that_sleeps_does_not_wait_for_a_processor() -> None:
    asleep, over = threading.Event(), threading.Event()

    def sleep() -> None:
        asleep.set()
        over.wait()

    thread = threading.Thread(target=sleep)
    thread.start()
    asleep.wait()
    assert thread.native_id is not None
    time.sleep(0.2)  # until it does sleep
    delay = Delay(thread.native_id)
    time.sleep(0.2)
    assert delay.seconds() == 0.0 and delay.more() == 0.0
    over.set()
    thread.join()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in seconds."""
    now = [100]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0] * 10**9)
    return now


def looks(folder: Path, clock: list[int], *seen: tuple[str, int, int]) -> list[float]:
    """What a delay comes to at a look every ten seconds, of a thread that is found in such states
    with so many seconds of running and of waiting that are over."""
    (folder / "7").mkdir()
    delay, told = Delay(process=os.getpid()), []
    delay._tasks, delay._before = folder, {}
    for state, ran, waited in seen:
        (folder / "7" / "stat").write_text(f"7 (a) R name) {state} 1 1\n")
        (folder / "7" / "schedstat").write_text(f"{ran * 10**9} {waited * 10**9} 5\n")
        told.append(delay.seconds())
        clock[0] += 10
    return told


def test_a_wait_that_is_not_over_counts(tmp_path: Path, clock: list[int]) -> None:
    waits = [("R", 1, 0), ("R", 1, 0), ("R", 1, 0), ("R", 1, 25), ("R", 1, 25)]
    assert looks(tmp_path, clock, *waits) == [0, 10, 20, 25, 35]


def test_what_runs_or_sleeps_does_not_wait(tmp_path: Path, clock: list[int]) -> None:
    runs = [("R", 1, 0), ("R", 11, 0), ("R", 21, 0)]
    (tmp_path / "runs").mkdir()
    assert looks(tmp_path / "runs", clock, *runs) == [0, 0, 0]
    sleeps = [("S", 1, 0), ("S", 1, 0), ("R", 1, 0), ("S", 1, 0), ("R", 1, 0), ("R", 1, 0)]
    assert looks(tmp_path, clock, *sleeps) == [0, 0, 0, 0, 0, 10]


def test_a_process_that_is_gone_has_waited_for_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        assert Delay(process=child.pid).seconds() == 0.0
