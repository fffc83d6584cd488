"""What a user gets: the wheel, in an environment of its own, outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

# A user's own column linear under our spec.
MY_CHECKS = """
import torch, torch.distributed as dist, tpcheck
from tests import ROOT
from tpcheck import specs

class Copy(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x, group: (setattr(ctx, "group", group), x.view_as(x))[1])
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None

class Column(torch.nn.Module):
    def __init__(self, k, n, bias, group):
        super().__init__()
        self.group, rows = group, n // group.size()
        self.weight = torch.nn.Parameter(torch.empty(rows, k))
        self.bias = torch.nn.Parameter(torch.empty(rows)) if bias else None
    def forward(self, x):
        return torch.nn.functional.linear(Copy.apply(x, self.group), self.weight, self.bias)

def build(case, mesh):
    return Column(case["in_features"], case["out_features"], case["bias"], mesh["tp"].get_group())

column = tpcheck.Check(specs.column_linear(even=True), candidate=build)

def test_column(tpcheck_engine):
    tpcheck.verify(column, engine=tpcheck_engine, examples=6)

def test_column_again(tpcheck_engine):
    tpcheck.verify(column, engine=tpcheck_engine, examples=6, seed=1)
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; its dependencies are lent by this environment."""
    folder = tmp_path_factory.mktemp("user")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
    subprocess.run([*build, str(folder / "dist"), str(ROOT)], check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    assert {n.split("/")[0] for n in zipfile.ZipFile(wheel).namelist()} == {
        "tpcheck",
        f"tpcheck-{wheel.name.split('-')[1]}.dist-info",
    }
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "env" / "lib" / version / "site-packages"
    # appended after the environment's own packages: the wheel's tpcheck wins
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "work").mkdir()
    (folder / "work" / "my_checks.py").write_text(MY_CHECKS)
    return folder


def run(user: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    program = [str(user / "env" / "bin" / "python"), "-m", *command]
    return subprocess.run(
        program, capture_output=True, text=True, cwd=user / "work", env=environment
    )


def test_the_installed_tpcheck_is_the_wheels(user: Path) -> None:
    code = "import tpcheck; print(tpcheck.__file__)"
    python = str(user / "env" / "bin" / "python")
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=user / "work")
    assert str(user / "env") in out.stdout, out.stdout + out.stderr


def test_a_users_file_on_the_command_line(user: Path) -> None:
    done = run(user, "tpcheck", "verify", "my_checks.py", "--examples", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS    column" in done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_users_file_under_pytest(user: Path, workers: tuple[str, ...]) -> None:
    done = run(user, "pytest", "-q", *workers, "my_checks.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_failure_is_one_section_without_a_traceback(user: Path) -> None:
    broken = MY_CHECKS.replace("dist.all_reduce(g, group=ctx.group)", "pass")
    (user / "work" / "broken_checks.py").write_text(broken)
    done = run(user, "pytest", "-q", "broken_checks.py")
    assert done.returncode == 1
    assert "missing-all-reduce" in done.stdout
    assert "reproduce      tpcheck replay" in done.stdout
    assert "Traceback" not in done.stdout and "search.py" not in done.stdout


def test_two_runs_at_once_do_not_disturb_each_other(user: Path) -> None:
    command = [str(user / "env" / "bin" / "python"), "-m", "tpcheck", "verify", "my_checks.py"]
    runs = [
        subprocess.Popen(command, cwd=user / "work", stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
