"""What waits for an import is done after it, once."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tpcheck.process import guard
from tpcheck.process.after_import import after


def test_it_is_done_once_when_the_import_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waited_for").mkdir()
    (tmp_path / "waited_for" / "__init__.py").write_text(
        "from waited_for import part\nready = True\n"
    )
    (tmp_path / "waited_for" / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders, seen = [*sys.meta_path], []
    for _ in range(2):
        after("waited_for", lambda: seen.append(sys.modules["waited_for"].ready))
    assert len(sys.meta_path) == len(finders) + 1
    importlib.import_module("math")
    assert seen == []
    importlib.import_module("waited_for.part")
    assert seen == [True] and sys.meta_path == finders


def test_a_package_that_is_not_there_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    after("nowhere_to_be_found", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nowhere_to_be_found")


def test_what_waits_is_no_state_that_code_leaves_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = guard.of_rank()
    after("awaited_for_long", lambda: None)
    waits = sys.meta_path[0]
    assert before.restore() == []
    sys.meta_path.append(object())  # type: ignore[arg-type]
    assert [left.name for left in before.restore()] == ["sys.meta_path"]
    assert sys.meta_path[0] is waits, "it waits on"
