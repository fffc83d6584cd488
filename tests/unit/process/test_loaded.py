"""What of torch is loaded is told by package; other libraries are not."""

from __future__ import annotations

import sys
import types

import pytest

from tpcheck.process.loaded import parts_of_torch


def test_packages_of_torch_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.a_package", "torchao.a_package", "torch.a.b.c"):
        module = types.ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch.a_module", types.ModuleType("torch.a_module"))
    found = set(parts_of_torch())
    assert {"torch.nn", "torch.distributed", "torch.a_package"} <= found
    assert not found & {"torchao.a_package", "torch.a.b.c", "torch.a_module"}
