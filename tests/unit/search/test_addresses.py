"""Where checks are: those of one name are told apart by it."""

from __future__ import annotations

import sys
import sysconfig
import types
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.parallel.linear import RowLinear
from tests.candidates import check
from tpcheck import check as checks
from tpcheck import specs
from tpcheck.check import Check
from tpcheck.search.addresses import address, shown, titles
from tpcheck.search.collect import collect, runnable

SOURCE = """
from dataclasses import replace
from tpcheck import Check, specs

def build(case, mesh):
    raise NotImplementedError

good = Check(replace(specs.row_linear(), preload=("no_such_package",)), build)
"""


def test_checks_of_one_name_that_can_not_run_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for file in ("one.py", "sub/two.py"):
        (tmp_path / file).write_text(SOURCE)
    checks = collect(["one.py", "sub/two.py"])
    assert [address(own) for own in checks] == ["one.py::good", "sub/two.py::good"]
    able, absent = runnable(checks)
    assert able == [] and list(absent) == ["good (one.py::good)", "good (sub/two.py::good)"]
    assert list(runnable(checks[:1])[1]) == ["good"], "alone it needs no more"


def test_a_check_without_an_address_has_its_title() -> None:
    right: Check = check(RowLinear).named("right")
    assert titles([right, right, replace(right, name="other")]) == ["right", "right", "other"]
    assert address(right) is None and shown(None) is None
    assert shown(("/elsewhere/a.py", "x")) == "/elsewhere/a.py::x"


def made(name: str) -> types.ModuleType:
    """A module of an installed package."""
    module = types.ModuleType(name)
    module.__file__ = str(Path(sysconfig.get_path("purelib"), f"{name}.py"))
    return module


def test_a_module_that_held_none_is_looked_into_again_once_it_has_more_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = made("of_a_package")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    late = Check(specs.row_linear(), lambda case, mesh: None)
    assert late.address() is None
    module.late = late  # type: ignore[attr-defined]
    assert late.address() == (module.__file__, "late")


def test_one_that_held_none_is_not_looked_into_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made("of_another_package")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    nowhere = Check(specs.row_linear(), lambda case, mesh: None)
    assert nowhere.address() is None
    home = sys.modules[__name__]
    assert module not in [found for found, _ in checks._by_likelihood(home)]
