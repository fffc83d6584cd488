"""The modules beside a check's file. There is one module of a name in a process: what another
file's folder has under it must not stand in for a file's own."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tpcheck.errors import InvalidArgument

#: Folders that are on the path for the files in them alone.
_beside: set[Path] = set()


def make_importable(folder: Path) -> None:
    """Puts a folder on the path, last: a file called like a standard module must not win."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        if folder != Path.cwd():
            _beside.add(folder)


def packages_beside() -> frozenset[str]:
    """The first names of what was loaded from the working folder or from beside a file of checks,
    and is not installed."""
    folders = tuple(f"{folder}{os.sep}" for folder in {Path.cwd(), *_beside})
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    return frozenset(
        name.partition(".")[0]
        for name, file in files.items()
        if isinstance(file, str) and file.startswith(folders) and "site-packages" not in file
    )


def require_own(file: Path) -> None:
    """Raises `InvalidArgument` where a file, or one beside it that it imports, imports a module
    which is beside it, and gets the one of another file's folder."""
    waiting, seen = [file], {file}
    while waiting:
        for name in _imported_by(importing := waiting.pop()):
            own, taken = _beside_it(file.parent, name), _taken(name)
            if own is None or taken is None:
                continue
            if taken.parent not in _beside and taken.parent.parent not in _beside:
                continue  # of a library, or of the working folder, which comes first
            if taken != own:
                raise InvalidArgument(
                    f"{importing} imports {name}, and another file has loaded {taken} under that "
                    f"name, not {own}: verify the two in runs of their own, or rename one"
                )
            if own not in seen:
                seen.add(own)
                waiting.append(own)


def _imported_by(file: Path) -> Iterator[str]:
    """The first names of what a file imports, in functions, too."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _beside_it(folder: Path, name: str) -> Path | None:
    """The module of this name in a folder."""
    places = (folder / name / "__init__.py", folder / f"{name}.py")
    return next((place.resolve() for place in places if place.is_file()), None)


def _taken(name: str) -> Path | None:
    """The file of what is, or would be, imported under a name."""
    with contextlib.suppress(Exception):
        loaded = sys.modules.get(name)
        found = loaded.__file__ if loaded is not None else _origin(name)
        return Path(found).resolve() if found else None
    return None


def _origin(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    return spec.origin if spec is not None else None
