"""What leaves a command, and the exit code that it becomes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tpcheck.cli import main as entry


class Skipped(BaseException):
    """As pytest's own, which is no `Exception` either."""


@pytest.mark.parametrize("kind", [RuntimeError, GeneratorExit, Skipped])
def test_a_fault_of_tpchecks_own_decides_nothing(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: Any) -> None:
        raise kind("no such thing")

    monkeypatch.setattr(entry, "app", fails)
    with pytest.raises(SystemExit) as left:
        entry.main(["verify"])
    assert left.value.code == 3
    assert "no such thing" in capsys.readouterr().err


def test_a_working_folder_that_is_gone_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        with pytest.raises(SystemExit) as left:
            entry.main(["doctor"])
    finally:
        os.chdir(tmp_path)
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "working folder is not there any more" in told
