"""What a library puts in the place of functions when it is imported stays, and nothing else."""

from __future__ import annotations

import builtins
import importlib
import subprocess
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


@pytest.mark.filterwarnings("ignore:.*overridden:UserWarning")
def test_operators_that_an_import_registers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = "import torch\nheld = torch.library.Library('aten', 'IMPL')\n"
    source += "held.impl('sigmoid', torch.tanh, 'CPU')\n"
    (tmp_path / "a_library_that_registers.py").write_text(source)
    x = torch.tensor([0.3])
    right, before = torch.sigmoid(x), guard.of_driver()
    held = importlib.import_module("a_library_that_registers").held
    try:
        assert before.restore() == []
        assert not torch.equal(torch.sigmoid(x), right)
        other = torch.library.Library("aten", "IMPL")
        other.impl("tanh", torch.sigmoid, "CPU")
        (left,) = before.restore()
        assert (left.which, left.restored) == (("aten/tanh/CPU",), True)
    finally:
        held._destroy()
        del sys.modules["a_library_that_registers"]
    before = guard.of_import()
    (tmp_path / "a_library_that_registers.py").write_text(source)
    importlib.import_module("a_library_that_registers")
    try:
        (left,) = before.restore(own={"a_library_that_registers"})
        assert left.restored and torch.equal(torch.sigmoid(x), right)
    finally:
        del sys.modules["a_library_that_registers"]


LAZY = """
import sys, torch
from tpcheck.process import guard

name = "torch.distributed._functional_collectives"
assert name not in sys.modules, "choose another that registers operators"
before = guard.of_driver()
__import__(name)
found = before.restore()
assert not found, found
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
from torch.distributed._functional_collectives import all_reduce
x = torch.ones(2, device="meta", requires_grad=True)
assert all_reduce(x, "sum", torch.distributed.group.WORLD).shape == (2,)
"""


def test_torchs_own_operators_stay_where_a_reference_is_the_first_to_import_them() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
