"""Parts of tpcheck that a script carries along as source: of each module no more than is used."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]


@dataclass
class _Module:
    """One module's source, as its top-level definitions and imports.

    Args:
        kept: the definitions that are needed.
        imports: name → its line.
        origin: name that comes from tpcheck → (module, what of it; None of the module itself).
    """

    name: str
    lines: list[str]
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    origin: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, name: str) -> _Module:
        module = importlib.import_module(name)
        source = inspect.getsource(module)
        own = cls(name, source.splitlines())
        for node in ast.parse(source).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                own._import(module, node)
            for defined in _defined(node):
                own.definitions[defined] = node
        return own

    def _import(self, module: ModuleType, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            if isinstance(node, ast.Import) or node.module is None:
                self.imports[name] = ast.unparse(ast.Import([alias]))
            elif node.module.partition(".")[0] == PACKAGE:
                origin = _origin(node.module, alias.name)
                self.origin[name] = origin
                home = origin[0] if origin[1] else node.module
                self.imports[name] = ast.unparse(ast.ImportFrom(home, [alias], 0))
            elif node.module != "__future__":
                self.imports[name] = ast.unparse(ast.ImportFrom(node.module, [alias], 0))

    def needs(self, name: str) -> Iterator[tuple[str, str]]:
        """What a definition of it needs of tpcheck's modules."""
        node = self.definitions[name]
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                module, attribute = self.origin.get(inner.value.id, ("", ""))
                if module and attribute is None:
                    yield module, inner.attr
            elif isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith(PACKAGE):
                origins = [_origin(inner.module or "", alias.name) for alias in inner.names]
                yield from ((module, what) for module, what in origins if what is not None)
            elif isinstance(inner, ast.Name):
                module, attribute = self.origin.get(inner.id, ("", None))
                if inner.id in self.definitions:
                    yield self.name, inner.id
                elif attribute is not None:
                    yield module, attribute

    @property
    def source(self) -> str:
        """What is kept, in its order."""
        nodes = {id(self.definitions[n]): self.definitions[n] for n in self.kept}
        kept = sorted(nodes.values(), key=lambda node: node.lineno)
        used = {n.id for node in kept for n in ast.walk(node) if isinstance(n, ast.Name)}
        imports = sorted({line for name, line in self.imports.items() if name in used})
        texts = ["\n".join(self.lines[_first(node) - 1 : node.end_lineno]) for node in kept]
        return "\n\n".join(["from __future__ import annotations\n" + "\n".join(imports), *texts])


def carried(*wanted: tuple[str, str]) -> dict[str, str]:
    """Module → its source, of all that `wanted` (module, name) needs of tpcheck."""
    modules: dict[str, _Module] = {}
    waiting = list(wanted)
    while waiting:
        module, name = waiting.pop()
        own = modules.setdefault(module, _Module.of(module)) if module not in modules else None
        own = own or modules[module]
        if name in own.kept:
            continue
        if name in own.definitions:
            own.kept.add(name)
            waiting += own.needs(name)
        elif name in own.origin and own.origin[name][1] is not None:
            waiting.append((own.origin[name][0], str(own.origin[name][1])))
    return {name: modules[name].source for name in sorted(modules)}


def _origin(module: str, name: str) -> tuple[str, str | None]:
    """Where something that is imported from tpcheck is defined."""
    found: Any = getattr(importlib.import_module(module), name, None)
    if found is None:
        found = importlib.import_module(f"{module}.{name}")
    if isinstance(found, ModuleType):
        return found.__name__, None
    home = getattr(found, "__module__", None)
    defined = isinstance(home, str) and home.partition(".")[0] == PACKAGE
    return (str(home) if defined and hasattr(found, "__name__") else module), name


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        names = [n for target in node.targets for n in ast.walk(target)]
        return [n.id for n in names if isinstance(n, ast.Name)]
    return []


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
