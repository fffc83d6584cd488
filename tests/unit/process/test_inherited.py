"""What a fork would not have, or have in common with others, is seen."""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tpcheck.process.inherited import not_inherited

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="known on Linux alone")


@contextmanager
def thread() -> Iterator[None]:
    end = threading.Event()
    started = threading.Thread(target=end.wait)
    started.start()
    yield
    end.set()
    started.join()
    while Path(f"/proc/self/task/{started.native_id}").exists():  # the kernel's end comes later
        time.sleep(1e-3)


@contextmanager
def timer() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, 3600)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextmanager
def drawn() -> Iterator[None]:
    state = random.getstate()
    random.random()
    yield
    random.setstate(state)


@contextmanager
def handler() -> Iterator[None]:
    old = signal.signal(signal.SIGCHLD, lambda *_: None)
    yield
    signal.signal(signal.SIGCHLD, old)


def in_a_fork(run: Callable[[], None]) -> None:
    """Where no thread of an earlier test is about to end."""
    if (pid := os.fork()) == 0:
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("threads", thread),
        ("timers", timer),
        ("SIGCHLD", handler),
        ("open files", tempfile.TemporaryFile),
        ("shared memory", lambda: mmap.mmap(-1, 4096)),
        ("random numbers", drawn),
    ],
)
def test_what_is_held_is_seen(
    name: str, held: Callable[[], AbstractContextManager[object]]
) -> None:
    def look() -> None:
        before = not_inherited()
        with held():
            now = not_inherited()
        assert [key for key in before if before[key] != now[key]] == [name]
        assert not_inherited() == before

    in_a_fork(look)
