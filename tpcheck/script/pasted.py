"""Modules of `parts/`, and others, as one text: their imports together, and their definitions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from types import ModuleType

_PARTS = "tpcheck.script.parts"


def imports(parts: Sequence[ModuleType], more: Sequence[str] = ()) -> str:
    """The import statements of all parts, each once, and `more`."""
    lines, here = set(more), {part.__name__ for part in parts}
    for part in parts:
        for node in ast.parse(inspect.getsource(part)).body:
            own = isinstance(node, ast.ImportFrom) and (
                node.module in here or str(node.module).startswith(_PARTS)
            )
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not own):
                lines |= {_line(node, alias) for alias in node.names}
    together = _together(lines - {"from __future__ import annotations"})
    return "\n".join(sorted(together, key=_place))


def _place(line: str) -> tuple[bool, str]:
    """Torch comes after the standard library."""
    return line.split()[1].startswith("torch"), line


def _line(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import([alias]))
    return ast.unparse(ast.ImportFrom(node.module, [alias], 0))


def _together(lines: set[str]) -> list[str]:
    """Names of one module in one line."""
    plain = [line for line in lines if line.startswith("import ")]
    named: dict[str, list[str]] = {}
    for line in lines - set(plain):
        module, _, name = line.partition(" import ")
        named.setdefault(module, []).append(name)
    return plain + [f"{module} import {', '.join(sorted(n))}" for module, n in named.items()]


def definitions(part: ModuleType) -> str:
    """All below its imports."""
    source = inspect.getsource(part)
    last = max(
        node.end_lineno or 0
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    return "\n".join(source.splitlines()[last:]).strip("\n")
