"""A working folder with a file of checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.ranks.cli.commands import CHECKS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checks.py").write_text(CHECKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for `fixtures`
    return tmp_path
