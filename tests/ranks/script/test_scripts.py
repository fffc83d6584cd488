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
    (folder / "sitecustomize.py").write_text(ALONE)
    command = [sys.executable, "-m", "tpcheck", "verify", "--examples", "16", "--tp", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    (folder / "sitecustomize.py").rename(folder / "alone.py")
    for file in ("kernels.py", "models.py"):
        done = subprocess.run([*command, file], cwd=folder, env=environment, capture_output=True)
        assert done.returncode == 1, done.stdout.decode() + done.stderr.decode()
    (folder / "alone").mkdir()
    (folder / "alone.py").rename(folder / "alone" / "sitecustomize.py")
    return folder


@pytest.fixture(autouse=True)
def inside(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)


def identity(check: str) -> str:
    (saved,) = [s for s in Corpus()._readable() if s.check == check]
    return saved.id


def script(file: str, check: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of a check's case, as the command line prints it."""
    (saved,) = [s for s in Corpus()._readable() if s.address == (file, check)]
    capsys.readouterr()
    assert run("replay", saved.id, "--script") == 0
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


def fixed(file: str) -> None:
    path = Path(file)
    path.write_text(path.read_text().replace("FIXED = False", "FIXED = True"))


def broken(file: str) -> None:
    path = Path(file)
    path.write_text(path.read_text().replace("FIXED = True", "FIXED = False"))


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("stride_ignored", r"WRONG: output (z|sum.0) \[\d+, \d+\]: expected .* got .* bound"),
        ("twice", r"WRONG: input_grad [xy], a second backward of the same call: \d+ of"),
        ("input_overwritten", r"WRONG: x: the call, or its backward, changes \d+ bytes"),
        ("raising", r"ValueError: deliberate(.|\n)*WRONG: it raises"),
        ("dying", r"WRONG: the process is killed by SIGSEGV"),
        ("nameless", r"WRONG: output output \[\d+, \d+\]: expected"),
        ("out_of_bounds", r"WRONG: out of bounds: load outside .* _scale"),
        ("race", r"WRONG: race: Race\(kernel='_sum'"),
    ],
)
def test_the_script_of_a_kernel_shows_it_until_it_is_fixed(
    check: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script("kernels.py", check, capsys)
    status, told = shown(path)
    assert status == 1 and re.search(says, told), told
    fixed("kernels.py")
    try:
        status, told = shown(path)
    finally:
        broken("kernels.py")
    assert status == 0 and "the fault does not show" in told, told


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("row", r"WRONG: output output on rank 0 \[.*\]: expected .* got"),
        ("loaded", r"WRONG: output output on rank 0 \[.*\]: expected .* got"),
        ("planned", r"WRONG: output output on rank 0 \[.*\]: expected .* got"),
        ("raising", r"ValueError: deliberate(.|\n)*WRONG: it raises"),
    ],
)
def test_the_script_of_a_model_shows_it_until_it_is_fixed(
    check: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script("models.py", check, capsys)
    status, told = shown(path)
    assert status == 1 and re.search(says, told), told
    fixed("models.py")
    try:
        status, told = shown(path)
    finally:
        broken("models.py")
    assert status == 0 and "the fault does not show" in told, told


def test_torchrun_runs_the_script_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = script("models.py", "row", capsys)
    status, told = shown(path, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    assert status == 1 and told.count("WRONG: output output on rank 0") == 1, told


def test_what_a_script_can_not_show_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    (saved,) = [s for s in Corpus()._readable() if s.address == ("kernels.py", "unreachable")]
    said = complaint(capsys, "replay", saved.id, "--script")
    assert saved.id in said and "kernel_check" in said
