"""Whose children are ended, whatever a candidate has made of `os`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tpcheck.process.children import children


def test_children_are_of_this_process_whatever_getpid_says(monkeypatch: pytest.MonkeyPatch) -> None:
    if (child := os.fork()) == 0:
        signal.pause()
        os._exit(0)
    before = set(children())
    monkeypatch.setattr(os, "getpid", lambda: 1)
    try:
        assert set(children()) == before and child in before
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_process_may_be_called_by_bytes_that_are_no_text() -> None:
    program = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, bytes([255, 254, 65]), 0, 0, 0);"
        "print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        found = children()
        child.kill()
    assert child.pid in found
