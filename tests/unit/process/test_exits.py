"""Code under test ends no driver, and has no say in its exit code."""

from __future__ import annotations

import os
import subprocess
import sys

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
