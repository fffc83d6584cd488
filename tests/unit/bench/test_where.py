"""The gate as a command that is run and read; where a run was measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tpcheck.bench import gate, where
from tpcheck.errors import InvalidArgument


def ends_with(code: int, report: object) -> Any:
    """A `subprocess.run` of a `verify` that writes this report and ends so."""

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        Path(command[command.index("--json") + 1]).write_text(json.dumps(report))
        run.asked = command[command.index("verify") :]  # type: ignore[attr-defined]
        return SimpleNamespace(returncode=code, stderr="", stdout="one\ntwo\n")

    return run


def test_the_gate_is_counted_in_its_own_report(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ends_with(0, {"checks": [{"examples": 20}, {"examples": 10}]})
    monkeypatch.setattr(gate.subprocess, "run", run)
    found = gate.run("some.py", examples=3)
    assert found is not None and (found.checks, found.cases) == (2, 30)
    assert found.rate == pytest.approx(30 / found.seconds)
    assert run.asked[:2] == ["verify", "some.py"] and run.asked[-2:] == ["--examples", "3"]


def test_a_gate_that_does_not_pass_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gate.subprocess, "run", ends_with(1, {}))
    with pytest.raises(InvalidArgument, match=r"verify some.py ends with 1: two"):
        gate.run("some.py")
    monkeypatch.chdir(tmp_path)
    assert gate.run() is None, "there are no properties here"


def test_a_commit_is_told_with_what_was_changed_since(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        about = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *about, *words], cwd=tmp_path, check=True, capture_output=True)

    assert where.commit(tmp_path) is None
    git("init")
    file = tmp_path / "a" / "f.py"
    file.parent.mkdir()
    file.touch()
    git("add", ".")
    git("commit", "-m", "x")
    head = where.commit(file.parent)
    assert head is not None and len(head) == 40
    file.write_text("changed")
    assert where.commit(file.parent) == head + "+"
    (tmp_path / "installed").mkdir()
    assert where.commit(tmp_path / "installed") is None
