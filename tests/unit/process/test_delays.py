"""Time in which others had the processor."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

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


def test_a_process_that_is_gone_has_waited_for_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        assert Delay(process=child.pid).seconds() == 0.0
