"""Where a script finds what a check was given: its candidate, its `load`, a spec's `forward`."""

from __future__ import annotations

import ast
import importlib.util
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from tpcheck.check import Check


@dataclass(frozen=True)
class Subject:
    """What a script imports.

    Args:
        module: its name; its file where no import finds it.
        path: what to take of it: `swiglu`, `Function.apply`, or the variable of a check.
        folder: from which it is imported, below the working folder.
    """

    module: str
    path: str
    folder: str = "."

    @property
    def title(self) -> str:
        module = Path(self.module).stem if self.module.endswith(".py") else self.module
        return f"{module}.{self.path}"

    @property
    def arguments(self) -> str:
        """Of `candidate` (`parts/candidate`)."""
        return f"{self.module!r}, {self.path!r}, CARRIED, folder={self.folder!r}"


def named(value: Any, check: Check) -> Subject | None:
    """By a name in its own module, or in the file of the check; None where it has none."""
    owner = getattr(value, "__self__", None)
    homes = [getattr(value, "__module__", None), getattr(owner, "__module__", None)]
    modules = [sys.modules[h] for h in homes if isinstance(h, str) and h in sys.modules]
    address = check.address()
    if address is not None:
        modules += [m for m in list(sys.modules.values()) if _file(m) == address[0]]
    for module in modules:
        for path in _paths(module, value):
            if _is_there(module, path, value) and (found := _place(module, path)) is not None:
                return found
    return None


def of_check(check: Check, makers: tuple[str, ...]) -> Subject | None:
    """The check itself, where its file makes it by a plain call of one of `makers`: a script sees
    what that was given."""
    address = check.address()
    if address is None:
        return None
    file, variable = address
    tree = ast.parse(Path(file).read_text())
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if variable in names and called in makers:
                module = next(m for m in sys.modules.values() if _file(m) == file)
                return _place(module, variable)
    return None


def uses(subject: Any, package: str) -> bool:
    """Whether the module of a function, or one that it takes something from, imports a package."""
    seen: set[str] = set()
    waiting = [_home(subject)]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if top == package:
            return True
        module = sys.modules.get(name)
        if name in seen or module is None or top in _BELOW or top in sys.stdlib_module_names:
            continue
        seen.add(name)
        values = list(vars(module).values())
        waiting += [v.__name__ if isinstance(v, ModuleType) else _home(v) for v in values]
    return False


#: Packages that every kernel stands on: what they import says nothing of it.
_BELOW = ("torch", "numpy", "tpcheck", "hypothesis", "pytest", "_pytest")


def _home(value: Any) -> str:
    owner = getattr(value, "__self__", value)
    for kind in (owner, type(owner)):
        name = getattr(kind, "__module__", None)
        if isinstance(name, str) and name in sys.modules and name != "builtins":
            return name
    return ""


def _paths(module: ModuleType, value: Any) -> Iterator[str]:
    """Names that it may have in a module."""
    owner, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
    if isinstance(owner, type):
        yield f"{owner.__qualname__}.{name}"
    yield str(getattr(value, "__qualname__", "") or name)
    for variable, held in list(vars(module).items()):
        if held is value:
            yield variable


def _is_there(module: ModuleType, path: str, value: Any) -> bool:
    """Whether the path leads to it; a bound method is made anew at each look."""
    try:
        found = reduce(getattr, path.split("."), module)
    except (AttributeError, ValueError):
        return False
    return found is value or (hasattr(value, "__self__") and bool(operator.eq(found, value)))


def _place(module: ModuleType, path: str) -> Subject | None:
    file = _file(module)
    name = module.__name__
    if file is None or name == "__main__":
        return None
    place = Path(file)
    parts = name.split(".")
    depth = len(parts) - (place.stem != "__init__")
    base = place.parents[depth]
    if not _finds(name, place):
        return Subject(_below(place), path)
    return Subject(name, path, _below(base) if base.is_relative_to(Path.cwd()) else ".")


def _finds(name: str, file: Path) -> bool:
    """Whether a script's import of this name leads to the file."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    wanted = None if spec is None or spec.origin is None else Path(spec.origin)
    own = all(part.isidentifier() for part in name.split("."))
    return own and wanted == file and not name.startswith("tpcheck_checks_")


def _below(place: Path) -> str:
    """A path below the working folder without that."""
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else str(place)


def _file(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else None
