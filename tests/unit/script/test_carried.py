"""What of tpcheck a script carries along."""

from __future__ import annotations

import ast
import sys
from types import ModuleType

import pytest

from tpcheck.script.carried import carried
from tpcheck.script.parts import candidate as part

SOURCES = carried(("tpcheck.kernels.interpreter", "install"), ("tpcheck.kernels.watch", "watching"))


def test_no_more_is_carried_than_is_used() -> None:
    assert {"tpcheck.kernels.interpreter", "tpcheck.kernels.watch"} <= SOURCES.keys()
    words = {n.name for n in ast.parse(SOURCES["tpcheck.vocabulary"]).body if hasattr(n, "name")}
    assert words >= {"Access"} and not words & {"Code", "Rule"}
    assert "tpcheck.search.corpus" not in SOURCES and "tpcheck.spec" not in SOURCES


def test_all_that_is_imported_of_tpcheck_is_carried() -> None:
    for source in SOURCES.values():
        compile(source, "carried", "exec")
        assert "'''" not in source
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tpcheck"):
                modules = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module in SOURCES or modules <= SOURCES.keys(), ast.unparse(node)


def test_it_is_imported_in_place_of_tpcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "tpcheck"}
    for name in own:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [part.Standins(SOURCES), *sys.meta_path])
    try:
        from tpcheck import Argument, specs
        from tpcheck.kernels import watch
        from tpcheck.kernels.view import View

        assert isinstance(watch, ModuleType) and watch.__file__ == "tpcheck/kernels/watch.py"
        assert View.__module__ == "tpcheck.kernels.view"
        for standin in (Argument, specs.row_linear):
            assert type(standin).__name__ == "Standin"
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] == "tpcheck"]:
            del sys.modules[name]
        sys.modules.update(own)
