"""What stands beside the pages: sizes of modules, hooks, the licence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT

LONG = 300


def long_modules(root: Path = ROOT) -> set[str]:
    """The Python files of the checkout that are too long to be read in one sitting."""
    folders = ("tpcheck", "fixtures", "properties", "tests")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    return {
        file.relative_to(root).as_posix()
        for file in files
        if len(file.read_text().splitlines()) > LONG
    }


def test_no_module_has_more_than_300_lines() -> None:
    assert long_modules() == set()


def test_the_twin_a_module_of_301_lines_is_seen(tmp_path: Path) -> None:
    (tmp_path / "tpcheck").mkdir()
    (tmp_path / "tpcheck" / "right.py").write_text("x = 1\n" * 300)
    (tmp_path / "tpcheck" / "long.py").write_text("x = 1\n" * 301)
    assert long_modules(tmp_path) == {"tpcheck/long.py"}


# ---- the tests' own page


def unnamed(root: Path = ROOT) -> set[str]:
    """What tests share, and their folders, that the tests' own page does not name."""
    page = (root / "tests" / "README.md").read_text()
    shared = (root / "tests" / "conftest.py").read_text()
    names = set(re.findall(r"^@pytest.fixture.*\n(?:async )?def (\w+)", shared, re.MULTILINE))
    beside = [path for path in (root / "tests").iterdir() if path.stem != "__pycache__"]
    names |= {f"tests/{path.name}/" for path in beside if path.is_dir()}
    names |= {f"tests/{path.name}" for path in beside if path.suffix == ".py"}
    names -= {"tests/__init__.py"}
    return {name for name in names if f"`{name}`" not in page}


def test_the_tests_page_has_each_folder_fixture_and_helper() -> None:
    assert unnamed() == set()


def test_the_twin_what_the_tests_page_leaves_out_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    (folder / "unit").mkdir(parents=True)
    (folder / "ranks").mkdir()
    (folder / "helpers.py").touch()
    (folder / "README.md").write_text("`tests/unit/`, `tests/conftest.py`")
    (folder / "conftest.py").write_text("@pytest.fixture\ndef gloo(): ...\ndef other(): ...\n")
    assert unnamed(tmp_path) == {"gloo", "tests/ranks/", "tests/helpers.py"}


# ---- what is beside the pages


def test_the_hooks_of_pre_commit_are_local_and_are_what_lint_runs() -> None:
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    for hook in hooks:
        tool = Path(hook["entry"].split()[0]).name
        assert f"$(BIN)/{tool}" in lint


def test_the_licence_is_apaches_own_text() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in licence and "END OF TERMS AND CONDITIONS" in licence
    assert len(licence.splitlines()) == 202
