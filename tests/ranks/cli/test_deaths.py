"""A run that is ended from outside: what was found is told, and no process and no file stays."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests import ROOT, commands
from tpcheck.engines.folder import SHARED

CHECKS = """
import time
from tests import candidates

class Slow(candidates.Row):
    def misbehave(self, partial):
        time.sleep(60)

first, second = candidates.check(candidates.OneRankRaises), candidates.check(Slow)
"""
SESSION = """
import time, tpcheck

def test_that_takes_long(tpcheck_engine):
    tpcheck_engine.start()
    print("FAIL", flush=True)
    time.sleep(60)
"""


def ended(number: int, program: str, *words: str, group: bool) -> int:
    """The exit code of a command that is sent a signal once it has printed a verdict; fails where
    it leaves something behind."""
    read, write = os.pipe()
    process = commands.started(words, ROOT, program=program, out=write, leads=True)
    os.close(write)
    assert process.pid is not None
    with open(read) as printed:
        while not (line := printed.readline()).startswith("FAIL"):
            assert line, "it ended by itself"
        marks = {mark for pid in children(process.pid) if (mark := mark_of(pid))}
        assert len(marks) == 1, marks
        (os.killpg if group else os.kill)(process.pid, number)
        printed.read()
    code = commands.ended(process)
    deadline = time.monotonic() + 10
    mark = marks.pop()
    while time.monotonic() < deadline and (living(mark) or (SHARED / mark).exists()):
        time.sleep(0.05)
    assert living(mark) == [] and not (SHARED / mark).exists()
    return code


def children(parent: int) -> list[int]:
    found = []
    for pid in processes():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[1]) == parent:
            found.append(pid)
    return found


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def mark_of(pid: int) -> str:
    """The run that a process is part of, or ""."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return ""
    return dict(line.partition("=")[::2] for line in environment).get("TPCHECK_INSIDE_A_RANK", "")


def living(mark: str) -> list[int]:
    return [pid for pid in processes() if mark_of(pid) == mark]


@pytest.mark.parametrize(
    ("number", "group", "code"),
    [
        (signal.SIGTERM, True, 143),
        pytest.param(signal.SIGHUP, False, 129, marks=pytest.mark.sweep),
        (signal.SIGKILL, True, -9),
    ],
)
def test_verify_ends_with_its_reports(tmp_path: Path, number: int, group: bool, code: int) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    report, suite = tmp_path / "report.json", tmp_path / "report.xml"
    words = ["--corpus", str(tmp_path / "corpus"), "--json", str(report), "--junit", str(suite)]
    assert (
        ended(number, "tpcheck", "verify", str(tmp_path / "checks.py"), *words, group=group) == code
    )
    assert len(list((tmp_path / "corpus").glob("*.json"))) == 1, "what was found is kept"
    if number != signal.SIGKILL:
        found = json.loads(report.read_text())
        assert found["reason"] == "interrupted after 1 of 2 checks" and suite.is_file()


def test_a_pytest_session_ends_with_its_reports(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SESSION)
    suite = tmp_path / "report.xml"
    words = ["-s", "-q", "-p", "no:cacheprovider", f"--junitxml={suite}"]
    assert ended(signal.SIGTERM, "pytest", *words, str(tmp_path / "test_it.py"), group=False) == 143
    assert suite.is_file()
