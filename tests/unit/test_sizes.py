"""No class of `tpcheck/` is a module of its own, and every function can be read at once.

Files have a limit, too: `tests/unit/pages/test_beside.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

#: Lines without the docstring, which says what callers need to know and may be long. Above these a
#: reader has to scroll, and what belongs together stands apart.
LONGEST = {"class": 200, "function": 60}


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines a definition has, without its docstring."""
    assert node.end_lineno is not None
    own = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is None:
        return own
    docstring = node.body[0]
    assert docstring.end_lineno is not None
    return own - (docstring.end_lineno - docstring.lineno + 1)


def too_long(folder: Path) -> Iterator[str]:
    """The classes and functions of a folder that are above their limit."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                kind = "class"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "function"
            else:
                continue
            if lines(node) > LONGEST[kind]:
                yield f"{file.relative_to(folder)}: {kind} {node.name} has {lines(node)} lines"


def test_every_class_and_function_is_short_enough() -> None:
    assert list(too_long(ROOT / "tpcheck")) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f():\n" + "    x = 1\n" * 60, ["a.py: function f has 61 lines"]),
        ("async def f():\n" + "    x = 1\n" * 60, ["a.py: function f has 61 lines"]),
        ("class A:\n" + "    x = 1\n" * 200, ["a.py: class A has 201 lines"]),
        (
            "class A:\n    def f(self):\n" + "        x = 1\n" * 60,
            ["a.py: function f has 61 lines"],
        ),
        ("def f():\n" + "    x = 1\n" * 59, []),
        ('def f():\n    """One.\n\n    Two.\n    """\n' + "    x = 1\n" * 59, []),
    ],
)
def test_the_twin_what_is_longer_is_seen(tmp_path: Path, text: str, says: list[str]) -> None:
    (tmp_path / "a.py").write_text(text)
    assert list(too_long(tmp_path)) == says
