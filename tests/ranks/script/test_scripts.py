"""Scripts of saved cases, run where tpcheck can't be imported: they show the fault, and no longer
once the candidate is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.ranks.cli.commands import complaint, run
from tests.ranks.script.candidates import KERNELS, MODELS
from tpcheck.search.corpus import Corpus

#: Nothing of this checkout is imported.
ALONE = f"""
import atexit, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tpcheck":
            raise ImportError("tpcheck is not here")

sys.meta_path.insert(0, Absent())

@atexit.register
def nothing_is_tpchecks():
    files = [str(getattr(m, "__file__", "")) for m in list(sys.modules.values())]
    assert not any(f.startswith({str(ROOT / "tpcheck")!r}) for f in files)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which every check has failed."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "models.py").write_text(MODELS)
    (folder / "alone").mkdir()
    (folder / "alone" / "sitecustomize.py").write_text(ALONE)
    command = [sys.executable, "-m", "tpcheck", "verify", "--examples", "16", "--tp", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for file in ("kernels.py", "models.py"):
        done = subprocess.run([*command, file], cwd=folder, env=environment, capture_output=True)
        assert done.returncode == 1, done.stdout.decode() + done.stderr.decode()
    return folder


@pytest.fixture(autouse=True)
def inside(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)


def identity(file: str, check: str) -> str:
    """Of the case in which a check has failed."""
    (saved,) = Corpus().of(check, (str(Path(file).resolve()), check))
    return saved.id


def script(file: str, check: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of a check's case, as the command line prints it."""
    capsys.readouterr()
    assert run("replay", identity(file, check), "--script") == 0
    path = Path("scripts") / f"{Path(file).stem}_{check}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(capsys.readouterr().out)
    return path


def shown(path: Path, *launcher: str) -> tuple[int, str]:
    """What a script says where tpcheck is not installed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRITON"))}
    environment["PYTHONPATH"] = "alone"
    command = [sys.executable, *launcher, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def shown_when_fixed(path: Path, file: str) -> tuple[int, str]:
    """What it says once the candidate is right."""
    broken = Path(file).read_text()
    Path(file).write_text(broken.replace("FIXED = False", "FIXED = True"))
    try:
        return shown(path)
    finally:
        Path(file).write_text(broken)


SAID = {
    ("kernels.py", "stride_ignored"): r"WRONG: output z \[\d+, \d+\]: expected .* got .* bound",
    ("kernels.py", "twice"): r"WRONG: input_grad [xy], a second backward of the same call: \d+ of",
    ("kernels.py", "input_overwritten"): r"x: the call, or its backward, changes \d+ bytes",
    ("kernels.py", "raising"): r"ValueError: deliberate",
    ("kernels.py", "dying"): r"WRONG: the process is killed by SIGSEGV",
    ("kernels.py", "nameless"): r"WRONG: output output \[\d+, \d+\]: expected",
    ("kernels.py", "out_of_bounds"): r"WRONG: out of bounds: load outside .* _scale",
    ("kernels.py", "race"): r"WRONG: race: Race\(kernel='_sum'",
    ("models.py", "row"): r"WRONG: output output on rank 0 \[.*\]: expected .* got",
    ("models.py", "loaded"): r"WRONG: output output on rank 0 \[.*\]: expected .* got",
    ("models.py", "planned"): r"WRONG: output output on rank 0 \[.*\]: expected .* got",
}


@pytest.mark.parametrize(("file", "check"), SAID)
def test_a_script_shows_the_fault_until_it_is_fixed(
    file: str, check: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(file, check, capsys)
    status, told = shown(path)
    assert status == 1 and re.search(SAID[file, check], told) and "WRONG" in told, told
    status, told = shown_when_fixed(path, file)
    assert status == 0 and "the fault does not show" in told, told


def test_torchrun_runs_the_script_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = script("models.py", "row", capsys)
    status, told = shown(path, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    assert status == 1 and told.count("WRONG: output output on rank 0") == 1, told


def test_what_a_script_can_not_show_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    case = identity("kernels.py", "unreachable")
    said = complaint(capsys, "replay", case, "--script")
    assert case in said and "kernel_check" in said
