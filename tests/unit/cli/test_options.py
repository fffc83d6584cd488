"""Options are read, and refused, before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpcheck.cli import options
from tpcheck.errors import InvalidArgument


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
