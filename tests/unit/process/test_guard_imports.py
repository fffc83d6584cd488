"""What a library puts in the place of functions when it is imported stays, and nothing else."""

from __future__ import annotations

import builtins
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies

from tpcheck.process import guard


def replaced(*args: Any, **kwargs: Any) -> None:
    """In place of a function of torch's."""


def test_what_an_import_replaces_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that replaces a function of torch would not do so again."""
    before = guard.of_rank()
    monkeypatch.syspath_prepend(tmp_path)
    source = "import functools, torch.nn.functional as F\n"
    source += "F.linear = functools.wraps(F.gelu)(lambda *given: 'replaced')\n"
    (tmp_path / "a_library_that_patches.py").write_text(source)
    old = F.linear
    try:
        importlib.import_module("a_library_that_patches")
        assert before.restore() == []
        assert F.linear is not old
    finally:
        F.linear = old
        del sys.modules["a_library_that_patches"]


def test_what_others_replace_while_something_is_imported_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate imports in its first case, as a rule."""
    before = guard.of_rank()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_library_that_does_nothing.py").write_text("")
    importlib.import_module("a_library_that_does_nothing")
    old, number = F.linear, len
    F.linear, builtins.len, torch.float64 = replaced, replaced, torch.float32  # type: ignore
    try:
        left = {one.name for one in before.restore()}
    finally:
        del sys.modules["a_library_that_does_nothing"]
    assert left == {"torch.nn.functional.linear", "builtins.len", "torch.float64"}
    assert F.linear is old and builtins.len is number and torch.float64 is not torch.float32
    assert before.restore() == []


def test_what_draws_cases_is_put_back() -> None:
    before, old = guard.of_rank(), strategies.integers
    strategies.integers = replaced
    assert [one.name for one in before.restore()] == ["hypothesis.strategies.integers"]
    assert strategies.integers is old
