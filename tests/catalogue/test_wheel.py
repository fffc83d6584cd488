"""What a user gets: the wheel, in an environment of its own, outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import tpcheck
from tests import ROOT

# A user's own column linear under our spec.
MY_CHECKS = """
import torch, torch.distributed as dist, tpcheck
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

# The same user, who checks types strictly.
TYPED = """
import torch
from torch.distributed.device_mesh import DeviceMesh

import tpcheck
from tpcheck import Case, Check, Layout, Shard, Spec, specs
from tpcheck.adapters import dtensor
from tpcheck.verdict import CheckResult


def build(case: Case, mesh: DeviceMesh) -> torch.nn.Module:
    return torch.nn.Linear(case["in_features"] // mesh["tp"].size(), case["out_features"])


def layout(case: Case) -> Layout:
    return Layout(params={"weight": Shard(1)})


row: Check = Check(specs.row_linear(even=True), candidate=build)
own: Spec = specs.causal_lm(lambda case: torch.nn.Embedding(4, 4), cases=[], layout=layout)


def first(engine: tpcheck.Engine) -> CheckResult:
    results = tpcheck.verify(row, engine=engine, degrees=(2,))
    return results[0]
"""


def environment() -> dict[str, str]:
    """A user's: nothing in it leads to this checkout."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}


def built(folder: Path) -> Path:
    """The wheel, built as `make wheel` does it, from a copy: what an earlier build left in the
    checkout would be in it, too."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tpcheck", checkout / "tpcheck", ignore=ignored)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    subprocess.run(build, check=True, capture_output=True, cwd=checkout)
    (wheel,) = (checkout / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; its dependencies are lent by this environment."""
    folder = tmp_path_factory.mktemp("user")
    wheel = built(folder)
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, env=environment())
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "env" / "lib" / version / "site-packages"
    # appended after the environment's own packages: the wheel's tpcheck wins
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "work").mkdir()
    (folder / "work" / "my_checks.py").write_text(MY_CHECKS)
    (folder / "work" / "typed.py").write_text(TYPED)
    return folder


def run(user: Path, *command: str) -> subprocess.CompletedProcess[str]:
    program = [str(user / "env" / "bin" / "python"), "-m", *command]
    return subprocess.run(
        program, capture_output=True, text=True, cwd=user / "work", env=environment()
    )


def test_the_wheel_has_the_package_and_nothing_else(user: Path) -> None:
    (wheel,) = (user / "checkout" / "dist").glob("*.whl")
    about = f"tpcheck-{tpcheck.__version__}.dist-info"
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [file for file in (ROOT / "tpcheck").rglob("*") if file.is_file()]
    own = {str(f.relative_to(ROOT)) for f in files if "__pycache__" not in f.parts}
    assert {name for name in names if not name.startswith(about)} == own
    assert {f"{about}/licenses/LICENSE", "tpcheck/py.typed"} <= names


def test_make_wheel_is_the_same_build() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nwheel:")[2].partition("\n\n")[0]
    assert "-m build --wheel --no-isolation --outdir dist" in recipe


def test_the_installed_tpcheck_is_the_wheels(user: Path) -> None:
    code = "import tpcheck; print(tpcheck.__file__)"
    program = [str(user / "env" / "bin" / "python"), "-c", code]
    out = subprocess.run(
        program, capture_output=True, text=True, cwd=user / "work", env=environment()
    )
    assert str(user / "env") in out.stdout, out.stdout + out.stderr


def test_a_users_file_on_the_command_line(user: Path) -> None:
    done = run(user, "tpcheck", "verify", "my_checks.py", "--examples", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS    column" in done.stdout


@pytest.mark.sweep  # each worker has an engine of its own
def test_a_users_file_under_pytest_side_by_side(user: Path) -> None:
    done = run(user, "pytest", "-q", "-n", "2", "my_checks.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.sweep  # what pytest shows is also tested without the wheel
def test_under_pytest_a_failure_is_one_section_without_a_traceback(user: Path) -> None:
    broken = MY_CHECKS.replace("dist.all_reduce(g, group=ctx.group)", "pass")
    (user / "work" / "broken_checks.py").write_text(broken.partition("def test_column_again")[0])
    done = run(user, "pytest", "-q", "my_checks.py", "broken_checks.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout
    assert "missing-all-reduce" in done.stdout
    assert "reproduce      tpcheck replay" in done.stdout
    assert "Traceback" not in done.stdout and "search.py" not in done.stdout


@pytest.mark.sweep  # mypy reads all of torch, half a minute
def test_a_users_file_under_strict_mypy(user: Path) -> None:
    done = run(user, "mypy", "--strict", "typed.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sweep  # mypy reads all of torch, half a minute
def test_the_types_are_the_packages_own(user: Path) -> None:
    """The twin: a call that the package's annotations refuse."""
    wrong = TYPED.replace("degrees=(2,)", "degrees=2")
    assert wrong != TYPED
    (user / "work" / "mistyped.py").write_text(wrong)
    done = run(user, "mypy", "--strict", "mistyped.py")
    assert done.returncode == 1
    assert 'incompatible type "int"; expected "tuple[int, ...]"' in done.stdout


@pytest.mark.sweep  # a third of a minute
def test_two_runs_at_once_do_not_disturb_each_other(user: Path) -> None:
    command = [str(user / "env" / "bin" / "python"), "-m", "tpcheck", "verify", "my_checks.py"]
    runs = [
        subprocess.Popen(
            command, cwd=user / "work", stdout=subprocess.PIPE, text=True, env=environment()
        )
        for _ in range(2)
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
