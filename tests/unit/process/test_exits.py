"""Code under test ends no driver, and has no say in its exit code."""

from __future__ import annotations

import os
import posix
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import ROOT
from tpcheck.process.exits import refused

ENDING = """
import atexit, os, sys
from tpcheck.process.exits import refused
atexit.register(lambda: os._exit({theirs}))
print("the report", end="")
with refused(for_good=True):
    sys.exit({ours})
"""


def test_it_is_raised_and_put_back() -> None:
    before = os._exit
    with refused(), pytest.raises(SystemExit) as left:
        os._exit(0)
    assert left.value.code == 0 and os._exit is before


def test_posix_has_it_too() -> None:
    with refused(), pytest.raises(SystemExit) as left:
        posix._exit(0)
    assert left.value.code == 0


@pytest.mark.parametrize("replace", [os.execv, os.execl, os.execve, os.execvp])
def test_no_other_program_takes_its_place(replace: Callable[..., object]) -> None:
    words: list[object] = ["true"] if replace is os.execl else [["true"]]
    with refused(), pytest.raises(SystemExit, match="would have become '/bin/true'"):
        getattr(os, replace.__name__)("/bin/true", *words, *[{}][: replace is os.execve])


def test_what_is_forked_may_become_another_program() -> None:
    with refused():
        if (child := os.fork()) == 0:
            os.execv("/bin/sh", ["sh", "-c", "exit 6"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


THREADS = """
import os, sys, threading
from tpcheck.process import exits
exits.GRACE = 0.1
with exits.refused(for_good=True):
    threading.Thread(target=threading.Event().wait, name="stays").start()
    print("the report", end="")
    sys.exit(1)
"""


def test_a_thread_that_does_not_end_is_not_waited_for() -> None:
    words = [sys.executable, "-c", THREADS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "the report")
    assert done.stderr == "tpcheck: threads of code under test do not end, and are left: stays\n"


def test_what_was_registered_with_atexit_is_no_error() -> None:
    program = "import atexit, os, sys\nfrom tpcheck.process.exits import refused\n"
    program += "with refused(for_good=True):\n    atexit.register(os._exit, 0)\n    sys.exit(1)"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_what_is_forked_ends_by_it() -> None:
    with refused():
        if (child := os.fork()) == 0:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


@pytest.mark.parametrize(("ours", "theirs", "code"), [(1, 0, 1), (0, 3, 0), ("'text'", 0, 1)])
def test_what_ends_a_process_at_its_exit_changes_neither_code_nor_output(
    ours: object, theirs: int, code: int
) -> None:
    words = [sys.executable, "-c", ENDING.format(ours=ours, theirs=theirs)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "the report")
