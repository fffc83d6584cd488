"""Collection: a check that several files have is there once; what has none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.search.test_collect import SOURCE, folder
from tpcheck.errors import InvalidArgument
from tpcheck.search.collect import Aside, collect, without_checks

__all__ = ["folder"]  # a fixture

TWO = SOURCE.format(name="one") + "other = Check(specs.row_linear(), candidate=build)\n"


def test_a_check_that_another_file_imports_is_there_once(folder: Path) -> None:
    (folder / "held_once.py").write_text(TWO)
    (folder / "held_again.py").write_text("from held_once import one, other\n")
    for targets in (["."], ["held_again.py", "held_once.py"], ["held_once.py", "held_again.py"]):
        assert sorted(check.title for check in collect(targets)) == ["one", "other"], targets


def test_checks_without_an_address_are_not_one(folder: Path) -> None:
    (folder / "loop.py").write_text(TWO + "globals().update(a=one, b=other)\ndel one, other\n")
    assert sorted(check.title for check in collect(["loop.py"])) == ["a", "b"]


def test_files_and_folders_without_a_check_are_told_of(folder: Path) -> None:
    (folder / "held_once.py").write_text(TWO)
    (folder / "tools").mkdir()
    (folder / "tools" / "helpers.py").write_text("x = 1\n")
    (folder / "broken.py").write_text("import nothing_like_it\n")
    targets = ["held_once.py", "tools", "tools/helpers.py", "broken.py", "held_once.py::other", "."]
    aside: dict[str, Aside] = {}
    assert len(collect(targets, aside)) == 2
    assert without_checks(targets, aside) == ["tools", "tools/helpers.py"]


def test_a_file_that_is_refused_half_way_has_no_checks_however_often_it_is_named(
    folder: Path,
) -> None:
    (folder / "held_once.py").write_text(TWO)
    (folder / "half.py").write_text(TWO + "third = Check(4, candidate=build)\n")
    said = "pass a Spec"
    for targets in (["half.py::one"] * 2, ["half.py::third", "half.py::one", "half.py::other"]):
        with pytest.raises(InvalidArgument, match=said):
            collect(targets, {})
        aside: dict[str, Aside] = {}
        found = collect([*targets, "held_once.py::one"], aside)
        assert [check.title for check in found] == ["one"]
        assert [(Path(file).name, said in why.reason) for file, why in aside.items()] == [
            ("half.py", True)
        ]
