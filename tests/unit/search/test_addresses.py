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


TWINS = """
from tpcheck import Check
from of_twins import SPEC, build, witness

{name} = Check(SPEC, build{more})
"""


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what checks of several files have in common."""
    monkeypatch.chdir(tmp_path)
    own = "from tpcheck import specs\nSPEC = specs.row_linear()\n"
    own += "def build(case, mesh): ...\ndef witness(case): return {}\n"
    (tmp_path / "of_twins.py").write_text(own)
    return tmp_path


@pytest.mark.parametrize(
    "more", [", witness=witness", ", communication=True", ", processes=True", ""]
)
def test_two_checks_of_one_spec_and_candidate_are_two_in_each_order(twins: Path, more: str) -> None:
    """The one that has a witness, say, besides: it was taken for the other, and not run."""
    (twins / "plain.py").write_text(TWINS.format(name="c", more=""))
    (twins / "watched.py").write_text(TWINS.format(name="c", more=more))
    for files in (["plain.py", "watched.py"], ["watched.py", "plain.py"]):
        assert [address(own) for own in collect(files)] == [f"{file}::c" for file in files]


@pytest.mark.parametrize("more", [", witness=witness", ""])
def test_so_are_two_in_one_file(twins: Path, more: str) -> None:
    source = TWINS.format(name="plain", more="") + TWINS.format(name="watched", more=more)
    (twins / "both.py").write_text(source)
    found = ["both.py::plain", "both.py::watched"]
    assert [address(own) for own in collect(["both.py"])] == found
    assert [address(own) for own in collect(found[::-1])] == found[::-1]


def test_a_check_that_a_file_imports_is_that_of_its_own_file(twins: Path) -> None:
    source = TWINS.format(name="c", more="").replace("SPEC, build,", "SPEC,")
    own = source.replace("c = ", "def build(case, mesh): ...\nc = ")
    (twins / "its_own.py").write_text(own)
    (twins / "another.py").write_text("from its_own import c\n")
    assert [address(own) for own in collect(["another.py", "its_own.py"])] == ["its_own.py::c"]


def test_so_it_is_where_its_file_is_two_modules(twins: Path) -> None:
    """A file of a folder that is not a package is a module by its own name, and one by that of the
    folder where another imports it so."""
    (twins / "folder").mkdir()
    (twins / "folder" / "makes.py").write_text(TWINS.format(name="c", more=""))
    (twins / "folder" / "again.py").write_text("from folder.makes import *\n")
    (twins / "folder" / "named.py").write_text("from folder.again import c as d\n")
    files = ["folder/makes.py", "folder/again.py", "folder/named.py"]
    assert [address(own) for own in collect(files)] == ["folder/makes.py::c"] * 2
    assert [own.title for own in collect(files)] == ["c", "d"]


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
