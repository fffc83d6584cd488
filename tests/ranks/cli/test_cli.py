"""The command line: exit codes, reports, and one clear line for each user's mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tpcheck
from tests import ROOT
from tpcheck.cli import options
from tpcheck.cli.main import main
from tpcheck.errors import InvalidArgument
from tpcheck.search.search import Search

CHECKS = """
import torch, tpcheck
from tpcheck import Case, Check, Heads, Layout, Shard, Spec, specs
from fixtures.parallel.linear import RowLinear

def row(case, mesh):
    group = mesh["tp"].get_group()
    return RowLinear(case["in_features"], case["out_features"], group=group, bias=case["bias"])

class Unreduced(RowLinear):
    def sum_output(self, partial):
        return partial

def unreduced(case, mesh):
    group = mesh["tp"].get_group()
    return Unreduced(case["in_features"], case["out_features"], group=group, bias=case["bias"])

right = Check(specs.row_linear(), row)
wrong = Check(specs.row_linear(), unreduced)
budget_of_three = Check(
    specs.row_linear(), row, communication=True, overrides={"budget": lambda case: 3}
)

def plain(layout, cases):
    return Spec(
        name="plain",
        cases=cases,
        reference=lambda case: torch.nn.Linear(case["n"], case["n"]),
        inputs=lambda case, draw: {"x": draw("x", 2, case["n"])},
        layout=layout,
    )

def same(case, mesh):
    return torch.nn.Linear(case["n"], case["n"])

four = [Case(dims={"n": 4})]
missing = Check(plain(lambda case: Layout(params={"wieght": Shard(0)}), four), same)
unsplittable = Check(
    plain(lambda case: Layout(params={"weight": Shard(0, even=True)}), [Case(dims={"n": 5})]), same
)
no_such_dim = Check(
    plain(lambda case: Layout(params={"weight": Shard(3)}), [Case(dims={"n": 4})]), same
)
heads = Check(
    plain(
        lambda case: Layout(params={"weight": Heads(0, 6)}),
        [Case(dims={"n": 12}, mesh={"tp": 4})],
    ),
    same,
)
too_large = Check(plain(lambda case: Layout(), [Case(dims={"n": 4}, mesh={"tp": 8})]), same)
attention_case = Check(specs.attention(), same, overrides={"cases": [
    Case(dims=dict(batch=1, seq=1, hidden=4, heads=6, kv_heads=2, head_dim=2, bias=False,
                   norm="none", residual=False, qk_norm=False, rotary=False, causal=False),
         mesh={"tp": 4})]})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checks.py").write_text(CHECKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for `fixtures`
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a bad command; returns its one line."""
    capsys.readouterr()
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]


def test_pass_fail_reports_and_replay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = ["--json", "r/report.json", "--junit", "r/report.xml"]
    assert run("verify", "checks.py::right", "--examples", "4", *reports) == 0
    report = json.loads((folder / "r/report.json").read_text())
    assert report["schema_version"] == 1 and report["verdict"] == "PASS"
    assert report["checks"][0]["examples"] == 4
    assert report["checks"][0]["tp_degrees"] == [2, 4]
    assert report["checks"][0]["counterexample"] is None

    assert run("verify", "checks.py::wrong", "--examples", "4", *reports) == 1
    report = json.loads((folder / "r/report.json").read_text())
    found = report["checks"][0]["counterexample"]
    assert found["case"]["mesh"] == {"tp": 2}
    assert found["diagnosis"]["code"] == "missing-all-reduce"
    assert {m["kind"] for m in found["mismatches"]} >= {"output"}
    assert found["reproduce"] == f"tpcheck replay {found['id']}"
    suite = ElementTree.fromstring((folder / "r/report.xml").read_text()).find("testsuite")
    assert suite is not None and suite.get("failures") == "1"

    # a new process sees the same mismatch to the last bit
    command = [sys.executable, "-m", "tpcheck", "replay", found["id"]]
    again = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert again.returncode == 1, again.stderr
    assert "identical to the saved evidence, to the last bit" in again.stdout
    assert f"  reproduce      {found['reproduce']}\n" in again.stdout
    assert f"{found['mismatches'][0]['expected']:.17g}" in again.stdout


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_report_may_go_to_a_device_or_a_pipe(folder: Path, option: str) -> None:
    command = [sys.executable, "-m", "tpcheck", "verify", "checks.py::right", "--examples", "2"]
    for place in ("/dev/null", "/dev/stdout"):
        done = subprocess.run([*command, option, place], capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr
        shown = '"schema_version": 1' in done.stdout or "<testsuites>" in done.stdout
        assert shown == (place == "/dev/stdout")
        assert Path(place).is_symlink() or Path(place).is_char_device()


def test_a_report_may_go_to_a_device_in_a_folder_that_is_not_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "link").symlink_to("/dev/null")
    ask = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_dir() and ask(path, mode)
    )
    assert options._writable(folder / "link") == folder / "link"
    with pytest.raises(InvalidArgument, match="can't write the report"):
        options._writable(folder / "report.json")
    with pytest.raises(InvalidArgument, match="can't keep cases"):
        options._keeps(folder / "cases")


def test_a_reader_that_leaves_is_no_counterexample(folder: Path) -> None:
    command = f"{sys.executable} -m tpcheck verify checks.py::right --examples 2"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command.split(), stdout=write, stderr=subprocess.PIPE, text=True, cwd=folder
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_interrupt_keeps_what_is_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Search.run

    def interrupted(search: Search, deadline: float | None = None) -> Any:
        if search.check.title == "wrong":
            raise KeyboardInterrupt
        return ran(search, deadline)

    monkeypatch.setattr(Search, "run", interrupted)
    reports = ["--json", "r.json", "--junit", "r.xml"]
    targets = ["checks.py::right", "checks.py::wrong"]
    assert run("verify", *targets, "--examples", "2", *reports) == 130
    report = json.loads((folder / "r.json").read_text())
    assert (report["verdict"], report["reason"]) == ("UNKNOWN", "interrupted after 1 of 2 checks")
    assert [check["name"] for check in report["checks"]] == ["right"]
    suite = ElementTree.parse(folder / "r.xml").find("testsuite")
    assert suite is not None and (suite.get("tests"), suite.get("errors")) == ("2", "1")
    assert [case.get("name") for case in suite] == ["right", "the run"]
    assert "UNKNOWN  1 checks, 2 cases" in capsys.readouterr().out


def test_a_mistake_in_one_check_keeps_what_is_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Search.run

    def mistaken(search: Search, deadline: float | None = None) -> Any:
        if search.check.title == "right":
            raise InvalidArgument("right: no case exists")
        return ran(search, deadline)

    monkeypatch.setattr(Search, "run", mistaken)
    targets = ["checks.py::wrong", "checks.py::right"]
    assert run("verify", *targets, "--examples", "2", "--json", "r.json") == 2
    shown = capsys.readouterr()
    assert "diagnosis" in shown.out and "reproduce" in shown.out
    assert shown.err == "tpcheck: right: no case exists\n"
    report = json.loads((folder / "r.json").read_text())
    assert report["reason"] == "right: no case exists"
    assert [check["name"] for check in report["checks"]] == ["wrong"]


def test_what_cannot_run_here_is_skipped_and_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = (
        CHECKS
        + """
from dataclasses import replace
elsewhere = Check(replace(specs.row_linear(), preload=("no_such_package",)), row)
"""
    )
    (folder / "some.py").write_text(elsewhere)
    reason = "needs the package no_such_package, which is not installed"
    assert run("verify", "some.py::right", "some.py::elsewhere", "--examples", "2") == 0
    said = capsys.readouterr().out
    assert reason in said and "PASS  1 checks" in said and "1 checks skipped" in said
    campaign = ("calibrate", "alarms", "--tp", "2", "--dtype", "float32", "--cases", "10")
    assert run(*campaign, "some.py::right", "some.py::elsewhere") == 0
    said = capsys.readouterr().out
    assert reason in said and "right" in said and "10 cases" in said
    dims = '{"tokens": 4}'
    assert run("calibrate", "sensitivity", "some.py::elsewhere", "--dims", dims) == 2
    assert reason in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["calibrate"]):
        assert run(*arguments) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("Usage:") and len(lines) > 5


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"tpcheck {tpcheck.__version__}\n"


def test_a_case_from_another_folder_is_dumped_and_says_how_to_see_it_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file

    corpus = ["--corpus", "kept here"]
    assert run("verify", "checks.py::wrong", "--examples", "2", *corpus) == 1
    (saved,) = (folder / "kept here").glob("*.json")
    said = capsys.readouterr().out
    assert run("replay", saved.stem, "--dump", "dump", *corpus) == 1
    again = f"  reproduce      tpcheck replay {saved.stem} --corpus 'kept here'\n"
    assert again in said and again in capsys.readouterr().out
    expected = load_file(folder / "dump" / "expected.safetensors")
    ranks = [load_file(folder / "dump" / f"rank{r}.safetensors") for r in (0, 1)]
    total = sum(rank["output/output"].double() for rank in ranks)
    values = [t for name, t in expected.items() if name.startswith("value/0/")]
    assert any(t.shape == total.shape and bool((t - total).abs().max() < 1e-12) for t in values)


def test_a_saved_counterexample_is_replayed_first_and_forgotten_when_it_passes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "checks.py::wrong", "--examples", "2") == 1
    (saved,) = (folder / ".tpcheck" / "corpus").glob("*.json")
    report = ["--json", "r.json"]
    assert run("verify", "checks.py::wrong", "--examples", "2", *report) == 1
    found = json.loads((folder / "r.json").read_text())["checks"][0]
    assert found["counterexample"]["id"] == saved.stem and found["examples"] == 1
    source = (
        (folder / "checks.py")
        .read_text()
        .replace("return partial", "return super().sum_output(partial)")
    )
    (folder / "checks.py").write_text(source)
    command = [sys.executable, "-m", "tpcheck", "verify", "checks.py::wrong", "--examples", "2"]
    fixed = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert not saved.exists()


def test_user_mistakes_are_one_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        return complaint(capsys, *arguments)

    assert "did you mean 'wrong'" in said("verify", "checks.py::wrnog")
    assert "no such file or folder: gone.py" in said("verify", "gone.py")
    (folder / "broken.py").write_text("import nothing_like_it\n")
    assert "broken.py does not import: ModuleNotFoundError" in said("verify", "broken.py")
    (folder / "syntax.py").write_text("def f(:\n")
    assert "syntax.py does not import: SyntaxError" in said("verify", "syntax.py")
    (folder / "empty.py").write_text("x = 1\n")
    assert "no Check found in empty.py" in said("verify", "empty.py")
    (folder / "x.json").write_text('{"checks": []}')
    assert said("verify", "x.json").startswith("tpcheck: x.json is not a Python file: give")
    assert said("replay", "x.json").startswith("tpcheck: x.json is a report, not a saved case")
    assert "heads=6 is not divisible by tp=4" in said("verify", "checks.py::heads")
    assert "heads=6 is not divisible by tp=4" in said("verify", "checks.py::attention_case")
    assert "'wieght', which the reference does not have (did you mean 'weight'" in said(
        "verify", "checks.py::missing"
    )
    assert "size 5 is not divisible by tp=2" in said("verify", "checks.py::unsplittable")
    assert "names dim 3 of a tensor of shape (4, 4)" in said("verify", "checks.py::no_such_dim")
    assert "needs 8 ranks" in said("verify", "checks.py::too_large")
    assert "budget(case) returned a int, not a Budget" in said(
        "verify", "checks.py::budget_of_three"
    )
    assert "--ranks 8" in said("verify", "checks.py::right", "--tp", "8", "--ranks", "4")
    assert "no CUDA device" in said("verify", "checks.py::right", "--engine", "nccl")
    assert "'glue' is not one of" in said("verify", "checks.py::right", "--engine", "glue")
    assert "'float31' is not one of" in said("verify", "checks.py::right", "--dtype", "float31")
    assert "--tp 'two'" in said("verify", "checks.py::right", "--tp", "two")
    assert "--time-budget 'soon'" in said("verify", "checks.py::right", "--time-budget", "soon")
    for option, value in (("--examples", "0"), ("--ranks", "0"), ("--seed", "-1")):
        assert f"'{option}'" in said("verify", "checks.py::right", option, value)
    assert "give a file in a writable folder" in said("verify", "checks.py::right", "--json", ".")
    assert "can't keep cases in checks.py" in said("verify", "gone.py", "--corpus", "checks.py")
    assert "can't keep cases" in said("verify", "gone.py", "--corpus", "checks.py/below/it")
    assert "can't keep cases" in said("calibrate", "alarms", "gone.py", "--corpus", "checks.py")
    assert "can't write the report" in said("verify", "gone.py", "--json", "checks.py/r.json")
    assert "an empty name was given" in said("verify", "")
    assert "an empty name was given" in said("mutants", "::right")
    assert "No such option" in said("verify", "--exmaples", "3")
    assert "no saved case" in said("replay", "abcdef")
    (folder / "bad.json").write_text('{"schema_version": 1, "case": {"dims"')
    assert "corrupt case file bad.json" in said("replay", "bad.json")


def test_help_and_the_plugin_load_without_torch_or_hypothesis() -> None:
    code = """
import sys
{imports}
heavy = [name for name in ("torch", "hypothesis") if name in sys.modules]
sys.exit(7 if heavy else 0)
"""
    imports = {
        "import tpcheck.pytest_plugin": 0,
        "from tpcheck.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass": 0,
        "import tpcheck.search.search": 7,  # the twin: this test can fail
    }
    for text, expected in imports.items():
        command = [sys.executable, "-c", code.format(imports=text)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == expected, (text, done.stderr)


def test_rank_processes_import_neither_hypothesis_nor_pytest() -> None:
    code = (
        "import sys, tpcheck.ranks.host, tpcheck.specs;"
        "print([m for m in ('hypothesis', 'pytest') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
