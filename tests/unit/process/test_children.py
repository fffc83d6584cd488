"""Whose children are ended, whatever a candidate has made of `os`."""

from __future__ import annotations

import os
import signal

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
