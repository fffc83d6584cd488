"""`tpcheck verify`: exit codes, reports, and what is kept when a run does not end well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests import commands
from tests.ranks.cli.commands import CHECKS, run
from tpcheck.search.search import Search


def test_pass_fail_reports_and_replay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = ["--json", "r/report.json", "--junit", "r/report.xml"]
    reports += ["--html", "r/report.html"]
    assert run("verify", "checks.py::right", "--examples", "4", *reports) == 0
    report = json.loads((folder / "r/report.json").read_text())
    assert report["schema_version"] == 2 and report["verdict"] == "PASS"
    assert report["checks"][0]["examples"] == 4
    assert report["checks"][0]["tp_degrees"] == [2, 4]
    assert report["checks"][0]["counterexample"] is None

    assert run("verify", "checks.py::wrong", "--examples", "4", *reports) == 1
    report = json.loads((folder / "r/report.json").read_text())
    found = report["checks"][0]["counterexample"]
    assert report["checks"][0]["reason"] is None, "its second degree was not reached"
    assert found["case"]["mesh"] == {"tp": 2}
    assert found["diagnosis"]["code"] == "missing-all-reduce"
    assert {m["kind"] for m in found["mismatches"]} >= {"output"}
    assert found["reproduce"] == f"tpcheck replay {found['id']}"
    suite = ElementTree.fromstring((folder / "r/report.xml").read_text()).find("testsuite")
    assert suite is not None and suite.get("failures") == "1"
    assert run("report", "r/report.json", "-o", "r/again.html") == 0
    page = (folder / "r/report.html").read_text()
    assert page == (folder / "r/again.html").read_text() and found["reproduce"] in page

    # a new process sees the same mismatch to the last bit
    again = commands.ran(["replay", found["id"]], folder)
    assert again.returncode == 1, again.stderr
    assert "identical to the saved evidence, to the last bit" in again.stdout
    assert f"  reproduce      {found['reproduce']}\n" in again.stdout
    assert f"{found['mismatches'][0]['expected']:.6g}" in again.stdout


def test_github_is_told_of_what_does_not_pass_and_the_exit_code_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder.parent))
    targets = ["checks.py::right", "checks.py::wrong", "checks.py::missing"]
    assert run("verify", *targets, "--tp", "2", "--examples", "1", "--github") == 1
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    file = f"file={folder.name}/checks.py"
    lines = {n: i for i, line in enumerate(CHECKS.splitlines(), 1) for n in [line.split(" = ")[0]]}
    assert [line.partition("::FAIL ")[0].partition("::UNKNOWN ")[0] for line in said] == [
        f"::error {file},line={lines['wrong']},title=FAIL wrong",
        f"::warning {file},line={lines['missing']},title=UNKNOWN missing",
    ]
    text = (folder / "summary.md").read_text()
    assert text.startswith("before\n## tpcheck: FAIL\n") and "missing-all-reduce" in text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "gone" / "summary.md"))
    assert run("verify", targets[0], "--tp", "2", "--examples", "1", "--github") == 2
    shown = capsys.readouterr()
    assert "::" not in shown.out.replace("checks.py::right", "")
    assert shown.err.startswith("tpcheck: can't write the report ")


@pytest.mark.parametrize("shown", ["--json", "--junit"])
def test_a_report_may_go_to_a_device_or_a_pipe(folder: Path, shown: str) -> None:
    words = ["verify", "checks.py::right", "--examples", "2"]
    places = {"--json": "/dev/null", "--junit": "/dev/null", shown: "/dev/stdout"}
    options = [word for pair in places.items() for word in pair]
    read, write = os.pipe()
    process = commands.started([*words, *options], folder, out=write)
    os.close(write)
    with open(read) as pipe:
        printed = pipe.read()
    assert commands.ended(process) == 0
    assert ('"schema_version": 2' in printed) == (shown == "--json")
    assert ("<testsuites>" in printed) == (shown == "--junit")
    assert Path("/dev/null").is_char_device() and Path("/dev/stdout").is_symlink()


WRONG = ["verify", "checks.py::wrong", "--examples", "1", "--tp", "2"]


@pytest.mark.parametrize("stdout", ["reader gone", "/dev/full"])
def test_a_stdout_that_can_not_be_written_costs_neither_report_nor_exit_code(
    folder: Path, stdout: str
) -> None:
    read, write = os.pipe()
    os.close(read)
    if stdout == "/dev/full":
        os.close(write)
        write = os.open(stdout, os.O_WRONLY)
    words = [*WRONG, "--json", "r.json", "--junit", "/dev/full"]
    with open(folder / "said", "w") as err:
        process = commands.started(words, folder, out=write, err=err.fileno())
    os.close(write)
    assert commands.ended(process) == 1
    said = (folder / "said").read_text().splitlines()
    assert json.loads((folder / "r.json").read_text())["verdict"] == "FAIL"
    assert sum("can't write the report /dev/full: No space" in line for line in said) == 1
    full = [line for line in said if "can't write to stdout" in line]
    assert (len(full), len(said)) == ((1, 2) if stdout == "/dev/full" else (0, 1)), said


def test_a_gate_that_asked_for_a_report_and_gets_none_is_not_told_0(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", "checks.py::right", "--tp", "2", "--examples", "1", "--json", "/dev/full"]
    assert run(*command, "--junit", "r.xml") == 2
    out, err = capsys.readouterr()
    assert "PASS  1 check" in out and (folder / "r.xml").exists()
    assert err == "tpcheck: can't write the report /dev/full: No space left on device\n"


def test_an_interrupt_keeps_what_is_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Search.run

    def interrupted(search: Search, deadline: float | None = None) -> Any:
        if search.check.title == "wrong":
            signal.raise_signal(signal.SIGINT)
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
    assert "UNKNOWN  1 check, 2 cases" in capsys.readouterr().out


def test_the_trouble_of_one_check_is_not_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = ["checks.py::missing", "checks.py::budget_of_three", "checks.py::right"]
    options = ["--tp", "2", "--examples", "1", "--json", "r.json", "--junit", "r.xml"]
    assert run("verify", *targets, *options) == 2
    shown = capsys.readouterr()
    assert "UNKNOWN  missing: the layout's params name 'wieght'" in shown.out
    assert "UNKNOWN  3 checks" in shown.out
    assert shown.err.startswith("tpcheck: missing: ") and "(and 1 more check)" in shown.err
    assert len(shown.err.splitlines()) == 1
    report = json.loads((folder / "r.json").read_text())
    assert [(c["name"], c["verdict"], c["trouble"]) for c in report["checks"]] == [
        ("missing", "UNKNOWN", True),
        ("budget_of_three", "UNKNOWN", True),
        ("right", "PASS", False),
    ]
    assert (folder / "r.xml").exists()
    assert run("verify", *targets, "checks.py::wrong", *options) == 1, "a FAIL is told first"


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("line", ["import nothing_like_it", "1 / 0", "tpcheck.Check(None)"])
def test_where_nothing_imports_the_reports_say_so(folder: Path, line: str, jobs: str) -> None:
    (folder / "one.py").write_text(f"import tpcheck\n{line}\n")
    reports = ["--json", "r.json", "--junit", "r.xml", "--jobs", jobs]
    assert run("verify", "one.py", *reports) == 2
    (check,) = json.loads((folder / "r.json").read_text())["checks"]
    assert check["verdict"] == "UNKNOWN" and check["trouble"] and check["address"] == "one.py"
    assert check["reason"].endswith(("(line 2)", " at one.py:2")), check["reason"]
    assert len(ElementTree.parse(folder / "r.xml").findall("testsuite/testcase")) == 1


def test_two_checks_of_one_name_are_told_apart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "more.py").write_text(CHECKS)
    targets = ["checks.py::right", "sub/more.py::right"]
    reports = ["--json", "r.json", "--junit", "r.xml"]
    assert run("verify", *targets, "--tp", "2", "--examples", "1", *reports) == 0
    said = capsys.readouterr().out
    assert "right (checks.py::right)" in said and "right (sub/more.py::right)" in said
    checks = json.loads((folder / "r.json").read_text())["checks"]
    assert [check["address"] for check in checks] == targets
    cases = ElementTree.parse(folder / "r.xml").findall("testsuite/testcase")
    names = ["tpcheck.gloo.checks", "tpcheck.gloo.sub.more"]
    assert [case.get("classname") for case in cases] == names


@pytest.mark.sweep  # one that can not be written is in each run
def test_a_stdout_that_can_not_encode_loses_nothing(folder: Path) -> None:
    source = CHECKS.replace("return partial", "raise ValueError('\\u00dc \\x1b[31m [/x] \\udcff')")
    (folder / "checks.py").write_text(source)
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LANG": "C"}
    # of its own: the interpreter makes the streams
    command = [sys.executable, "-m", "tpcheck", *WRONG, "--json", "r.json", "--junit", "r.xml"]
    done = subprocess.run(command, capture_output=True, cwd=folder, env=environment)
    assert (done.returncode, done.stderr) == (1, b"")
    assert rb"ValueError: \xdc \x1b[31m [/x] \udcff" in done.stdout
    assert b"\x1b" not in done.stdout and b"reproduce" in done.stdout
    json.loads((folder / "r.json").read_bytes().decode("utf-8"))
    ElementTree.parse(folder / "r.xml")


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
    assert reason in said and "PASS  1 check" in said and "1 check skipped" in said
    campaign = ("calibrate", "alarms", "--tp", "2", "--dtype", "float32", "--cases", "10")
    assert run(*campaign, "some.py::right", "some.py::elsewhere") == 0
    said = capsys.readouterr().out
    assert reason in said and "right" in said and "10 cases" in said
    dims = '{"tokens": 4}'
    assert run("calibrate", "sensitivity", "some.py::elsewhere", "--dims", dims) == 2
    assert reason in capsys.readouterr().err
