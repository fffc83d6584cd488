"""Scripts of saved cases, run where tpcheck can't be imported: they show the fault, and no longer
once the candidate is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT, commands
from tests.ranks.cli.commands import complaint, run
from tests.ranks.script.candidates import KERNELS
from tests.ranks.script.models import MODELS
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

#: Scripts one after the other, each in a process of its own, forked from one that has loaded torch:
#: the first before, and the others after that has loaded Triton, seconds of each else. `+FILE`:
#: from here on the candidates of that file are right.
EACH = """
import os, pathlib, runpy, sys, torch

assert "triton" not in sys.modules  # a script says first that it is to interpret
for path in sys.argv[1:]:
    if path[0] == "+":
        file = pathlib.Path(path[1:])
        file.write_text(file.read_text().replace("FIXED = False", "FIXED = True"))
        continue
    if path != sys.argv[1] and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
        import triton.language
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        os.dup2(1, 2)
        try:
            sys.argv = [path]
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        os._exit(99)
    print(f"exit {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
"""

OF_KERNELS = {
    "stride_ignored": r"WRONG: output z \[\d+, \d+\]: expected .* got .* bound",
    "twice": r"WRONG: input_grad [xy], a second backward of the same call: \d+ of",
    "input_overwritten": r"x: the call, or its backward, changes \d+ bytes",
    "aliased": r"WRONG: input_grad [xy] \[\d+, \d+\]: expected",
    "some": r"WRONG: input_grad y there is none",
    "leaf": r"WRONG: input_grad x, with another consumer of the inputs: \d+ of",
    "keeping": r"WRONG: input_grad x, after another call's backward: \d+ of",
    "raising": r"ValueError: deliberate",
    "dying": r"WRONG: the process is killed by SIGSEGV",
    "leaving": r"WRONG: the process ends itself, with exit code 0",
    "nameless": r"WRONG: output output \[\d+, \d+\]: expected",
    "custom_op": r"WRONG: scripts::product: test_faketensor of torch.library.opcheck: \w+Error",
    "with_options": r"WRONG: output output \[\d+, \d+\]: expected",
    "out_of_bounds": r"WRONG: stopped: load outside .* _scale",
    "calls": r"WRONG: output output@1 \[\d+, \d+\]: expected",
    "inference": r"WRONG: output output \[\d+, \d+\]: expected",
    "in_part": r"WRONG: output output \[\d+, \d+\]: expected",
    **dict.fromkeys(
        ("address", "by_id", "integers"),
        r"WRONG: output, of inputs that were met before: \d+ of",
    ),
    "configured": r"WRONG: output output \[\d+, \d+\]: expected .* got nan",
    "giant": r"x: the call, or its backward, changes \d+ bytes",
    "reshaped": r"WRONG: x: the call, or its backward, leaves it with another shape, strides",
    "race": r"WRONG: race: _sum, line \d+: store by program \(\d+, 0, 0\) and ",
}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder."""
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "sitecustomize.py").write_text(ALONE)
    (tmp_path / "each.py").write_text(EACH)
    (tmp_path / "together.py").write_text(TOGETHER)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)


def fail(file: str, *checks: str) -> None:
    """Runs checks, each of which fails."""
    words = ["verify", *(f"{file}::{name}" for name in checks), "--examples", "16", "--tp", "2"]
    _, told = commands.tpcheck(words, Path.cwd())
    assert len(re.findall(r"^FAIL  +[a-z_]+ .* cases?  ", told, re.MULTILINE)) == len(checks), told


def identity(file: str, check: str) -> str:
    """Of the case in which a check has failed."""
    (saved,) = Corpus().of(check, (str(Path(file).resolve()), check))
    return saved.id


def script(file: str, check: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The script of a check's case, as the command line prints it."""
    capsys.readouterr()
    assert run("replay", identity(file, check), "--script") == 0
    path = Path("scripts") / f"{check}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(capsys.readouterr().out)
    return str(path)


def shown(*command: str) -> tuple[int, str]:
    """What scripts say where tpcheck is not installed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRITON"))}
    environment["PYTHONPATH"] = "alone"
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def shown_when_fixed(file: str, *command: str) -> tuple[int, str]:
    """What they say once the candidate is right."""
    broken = Path(file).read_text()
    Path(file).write_text(broken.replace("FIXED = False", "FIXED = True"))
    try:
        return shown(*command)
    finally:
        Path(file).write_text(broken)


#: By what the interpreter sees; those by values, and by what a benchmark has left, take as long.
FEW = ("race",)


@pytest.mark.parametrize(
    "checks", [FEW, pytest.param((*OF_KERNELS,), marks=pytest.mark.sweep)], ids=["few", "all"]
)
def test_scripts_of_kernels_show_the_fault_until_it_is_fixed(
    checks: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    fail("kernels.py", *checks)
    paths = [script("kernels.py", check, capsys) for check in checks]
    _, told = shown("each.py", *paths, "+kernels.py", *paths)
    each = re.split(r"^exit (.*)\n", told, flags=re.MULTILINE)
    assert each[1::2] == ["1"] * len(paths) + ["0"] * len(paths), told
    for said, check in zip(each[::2], checks, strict=False):
        assert "WRONG" in said and re.search(OF_KERNELS[check], said), said
    fixed = each[2 * len(paths) :: 2]
    assert all(said.endswith("the fault does not show\n") for said in fixed[:-1]), told


#: Two ranks of one script, as torchrun has them, forked from a process that has loaded torch.
TOGETHER = """
import os, runpy, socket, sys, torch

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
sys.argv.pop(0)
for rank in "01":
    if os.fork() == 0:
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
        os.environ.update(own, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            os._exit(end.code)
        os._exit(99)
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in "01"))
"""

OF_MODELS = {
    "loaded": r"WRONG: output output on rank 0 \[.*\]: expected .* got",
    "planned": r"WRONG: output output on rank 0 \[.*\]: expected .* got",
    "replicas": r"WRONG: output output: ranks \[0, 1\] must hold the same bits, and don't",
}


@pytest.mark.parametrize(
    "checks",
    [("loaded",), pytest.param((*OF_MODELS,), marks=pytest.mark.sweep)],
    ids=["one", "all"],
)
def test_scripts_of_models_show_the_fault_until_it_is_fixed(
    checks: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    fail("models.py", *checks)
    for check in checks:
        says = OF_MODELS[check]
        path = script("models.py", check, capsys)
        status, told = shown(path)
        assert status == 1 and re.search(says, told), told
        status, told = shown_when_fixed("models.py", "together.py", path)
        assert status == 0 and "the fault does not show" in told, told


@pytest.mark.sweep  # four more processes load torch
def test_torchrun_runs_the_script_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    fail("models.py", "row")
    path = script("models.py", "row", capsys)
    status, told = shown("-m", "torch.distributed.run", "--nproc-per-node", "2", path)
    assert status == 1 and told.count("WRONG: output output on rank 0") == 1, told


def test_what_a_script_can_not_show_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fail("kernels.py", "unreachable")
    case = identity("kernels.py", "unreachable")
    assert run("replay", case, "--script") == 2  # imports the file, which prints
    said = complaint(capsys, "replay", case, "--script")
    assert case in said and "kernel_check" in said
