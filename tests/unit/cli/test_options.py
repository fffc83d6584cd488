"""Options are read, and refused, before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpcheck.cli import options
from tpcheck.errors import InvalidArgument


@pytest.mark.parametrize("name", ["checks.py", "new.py", "LOUD.PY"])
def test_a_report_never_replaces_code(tmp_path: Path, name: str) -> None:
    """As in `--json checks.py`, where the report's own name was forgotten."""
    (tmp_path / "checks.py").write_text("x = 1\n")
    with pytest.raises(InvalidArgument, match=r"can't write the report .*: it is a Python file"):
        options._writable(tmp_path / name)


def test_a_report_may_go_to_a_device_in_a_folder_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    ask = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_dir() and ask(path, mode)
    )
    assert options._writable(tmp_path / "link") == tmp_path / "link"
    with pytest.raises(InvalidArgument, match="can't write the report"):
        options._writable(tmp_path / "report.json")
    with pytest.raises(InvalidArgument, match="can't keep cases"):
        options._keeps(tmp_path / "cases")
