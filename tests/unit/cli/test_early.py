"""What ends a run while a command is still being imported: one line, and the code of a shell."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tpcheck.errors import ENDING

#: Sends Ctrl-C when something is about to be imported, as a person may at that moment, and then
#: begins as the script does.
CODE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Comes:
    def find_spec(self, name, path=None, target=None):
        if name == {at!r}:
            {does}
sys.meta_path.insert(0, Comes())
sys.argv = ["tpcheck", *{words!r}]
from tpcheck.__main__ import main
main()
"""
CTRL_C = "os.kill(os.getpid(), signal.SIGINT)"
ROW = """
from tpcheck import Check, specs
def build(case, mesh): raise AssertionError("no ranks are there")
row = Check(specs.row_linear(), build)
"""


def run(at: str, *words: str, does: str = CTRL_C, cwd: Path | None = None) -> tuple[int, str, str]:
    code = CODE.format(at=at, does=does, words=list(words))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("at", ["tpcheck.cli.main", "typer", "tpcheck.engines.launch"])
def test_before_any_verb_is_known(at: str) -> None:
    assert run(at, "--version") == (130, "", "tpcheck: interrupted\n")


@pytest.mark.parametrize("number", ENDING)
def test_so_is_what_else_ends_a_run(number: signal.Signals) -> None:
    """It ended without a line."""
    comes = f"signal.signal(signal.{number.name}, signal.SIG_DFL)\n" if number != 2 else ""
    code = CODE.replace("import os, signal, sys\n", f"import os, signal, sys\n{comes}")
    kills = f"os.kill(os.getpid(), signal.{number.name})"
    code = code.format(at="typer", does=kills, words=["--version"])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (128 + number, "tpcheck: interrupted\n")


VERBS = {
    "verify": ["verify", "row.py"],
    "fuzz": ["fuzz", "row.py"],
    "replay": ["replay", "0" * 6],
    "audit": ["audit", "row:build"],
    "mutants": ["mutants", "row.py"],
    "alarms": ["calibrate", "alarms", "row.py"],
    "sensitivity": ["calibrate", "sensitivity"],
    "init": ["init", "row.py:build"],
    "bench": ["bench"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_while_a_verb_imports_torch(verb: str, tmp_path: Path) -> None:
    (tmp_path / "row.py").write_text(ROW)
    code, out, err = run("torch", *VERBS[verb], cwd=tmp_path)
    assert (code, err) == (130, "tpcheck: interrupted\n")
    assert out == "" or verb == "doctor", "which prints what it knows"


def test_the_twin_what_is_not_a_signal_goes_on() -> None:
    code, out, err = run("typer", "--version", does="pass")
    assert (code, out.split()[0], err) == (0, "tpcheck", "")


def test_one_that_is_ignored_stays_so() -> None:
    code = CODE.replace("signal.default_int_handler", "signal.SIG_IGN")
    code = code.format(at="typer", does=CTRL_C, words=["--version"])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("tpcheck ")
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
