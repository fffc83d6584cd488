"""What of torch is loaded is told by package; other libraries are not."""

from __future__ import annotations

import sys
import types

import pytest

from tpcheck.process import loaded
from tpcheck.process.loaded import inherit, parts_of_torch


def test_packages_of_torch_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.a_package", "torchao.a_package", "torch.a.b.c"):
        module = types.ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch.a_module", types.ModuleType("torch.a_module"))
    found = set(parts_of_torch())
    assert {"torch.nn", "torch.distributed", "torch.a_package"} <= found
    assert not found & {"torchao.a_package", "torch.a.b.c", "torch.a_module"}


def test_what_a_process_was_forked_with_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "_inherited", 0)
    assert "torch.nn" in parts_of_torch()
    inherit()
    assert parts_of_torch() == []
    package = types.ModuleType("torch.a_package")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "torch.a_package", package)
    assert parts_of_torch() == ["torch.a_package"]
    monkeypatch.delitem(sys.modules, "torch.a_package")
    monkeypatch.delitem(sys.modules, "torch.nn")
    assert parts_of_torch() == [], "fewer than it had"
