"""What is seen of files before they are imported: what can't be used, and what is doubtful."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tpcheck.errors import InvalidArgument
from tpcheck.search.files import look

RIGHT = (
    "import os, json\nfrom pathlib import Path\nrow = column = os\nimport email.message as mail\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name", "doubt"),
    [
        (RIGHT, "row", None),
        (RIGHT, "mail", None),
        (RIGHT, "Path", None),
        (RIGHT, "wor", "binds no wor"),
        ("for row in [1]: pass", "row", None),
        ("def row(): ...", "row", None),
        ("match 3:\n    case row: pass", "row", None),
        ("from os import *", "row", None),
        ("globals()['row'] = 1", "row", None),
        ("exec('row = 1')", "row", None),
        ("import nothing_like_it", "", "imports nothing_like_it"),
        ("from nothing_like_it.below import x", "", "imports nothing_like_it"),
        ("try:\n    import nothing_like_it\nexcept ImportError: pass", "", None),
        ("def f():\n    import nothing_like_it", "", None),
        ("import sys\nsys.path.append('x')\nimport nothing_like_it", "", None),
        ("import neighbour\nfrom . import x", "", None),
        ("-" * 5000 + "1", "row", None),  # too deep, which the import says
    ],
)
def test_what_is_likely_to_fail_is_doubted(
    folder: Path, text: str, name: str, doubt: str | None
) -> None:
    (folder / "neighbour.py").touch()
    (folder / "checks.py").write_text(text)
    found = look([f"checks.py::{name}" if name else "checks.py"])
    assert found == ([] if doubt is None else [f"checks.py {doubt}"])


def test_a_file_is_doubted_once_and_every_name_is_looked_for(folder: Path) -> None:
    (folder / "checks.py").write_text("import nothing_like_it\nrow = 1")
    found = look(["checks.py::row", "checks.py::a", "checks.py::b"])
    assert found == [
        "checks.py imports nothing_like_it",
        "checks.py binds no a",
        "checks.py binds no b",
    ]


def _is_a_value_error(text: bytes) -> bool:
    """To this Python's parser."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return isinstance(error, ValueError)
    return False


@pytest.mark.parametrize("text", [b"def f(:", b"\xff", b"x = 1\0", b"# coding: nothing-like-it"])
def test_what_does_not_parse_is_said_as_its_import_would(folder: Path, text: bytes) -> None:
    from tpcheck.search.collect import load

    if _is_a_value_error(text):
        pytest.skip("left to the import on this Python: the test below")
    (folder / "broken.py").write_bytes(text)
    with pytest.raises(InvalidArgument) as before:
        look(["broken.py"])
    with pytest.raises(InvalidArgument) as imported:
        load(Path("broken.py"))
    assert str(before.value) == str(imported.value)
    assert "broken.py does not import: SyntaxError" in str(before.value)
    assert str(before.value).count("broken.py") == 1 and str(before.value).count("(line") <= 1


def test_a_nul_byte_is_said_once_whichever_error_python_has_for_it(folder: Path) -> None:
    from tpcheck.search.collect import load

    (folder / "broken.py").write_bytes(b"x = 1\0")
    with pytest.raises(InvalidArgument, match=r"does not import: .* null bytes") as caught:
        look(["broken.py"])  # says nothing where it is a ValueError, as on Python 3.11.2
        load(Path("broken.py"))
    assert str(caught.value).count("broken.py") == 1


def test_a_file_that_imports_one_that_does_not_parse_names_both(folder: Path) -> None:
    from tpcheck.search.collect import load

    (folder / "inner_broken.py").write_text("def f(:")
    (folder / "outer.py").write_text("\nimport inner_broken\n")
    with pytest.raises(InvalidArgument) as caught:
        load(Path("outer.py"))
    assert str(caught.value).endswith("(inner_broken.py, line 1) (line 2)")
