"""`tpcheck verify`: exit codes, reports, and what is kept when a run does not end well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.ranks.cli.commands import CHECKS, run
from tpcheck.errors import InvalidArgument
from tpcheck.search.search import Search


def test_pass_fail_reports_and_replay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = ["--json", "r/report.json", "--junit", "r/report.xml"]
    assert run("verify", "checks.py::right", "--examples", "4", *reports) == 0
    report = json.loads((folder / "r/report.json").read_text())
    assert report["schema_version"] == 2 and report["verdict"] == "PASS"
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
        shown = '"schema_version": 2' in done.stdout or "<testsuites>" in done.stdout
        assert shown == (place == "/dev/stdout")
        assert Path(place).is_symlink() or Path(place).is_char_device()


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
