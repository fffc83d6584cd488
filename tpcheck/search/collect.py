"""Finds `Check` objects in files, as pytest finds tests: by path, by folder, by `FILE::NAME`."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tpcheck.check import Address, Check
from tpcheck.errors import InvalidArgument, did_you_mean, let_through
from tpcheck.oracle.limit import one_process
from tpcheck.process import guard, own_settings
from tpcheck.report import reasons
from tpcheck.search.addresses import titles
from tpcheck.search.files import declared_at, does_not_import, files_at, parted, root
from tpcheck.search.neighbours import make_importable, packages_beside, require_own


@dataclass(frozen=True)
class Aside:
    """Why a file has no checks to run, and the line of it that says so, where that is known."""

    reason: str
    line: int | None


class NothingImports(InvalidArgument):
    """No file that was named imports.

    Args:
        aside: each of them, and why.
    """

    def __init__(self, message: str, aside: Mapping[str, Aside]) -> None:
        super().__init__(message)
        self.aside = aside


def collect(targets: Iterable[str], aside: dict[str, Aside] | None = None) -> list[Check]:
    """The checks that `targets` name, in order, each with its variable's name.

    Args:
        aside: is given the files that do not import, and why, where others have checks.

    Raises:
        InvalidArgument: a target that does not exist, does not import, has no such check, or
            no check at all.
    """
    found: list[Check] = []
    known: set[tuple[str, object]] = set()  # by title, and address, and which object it is
    errors: list[InvalidArgument] = []
    for target in targets:
        path, name = parted(target)
        loaded, failed = [], len(errors)
        for file in files_at(path):
            try:
                loaded.append(load(file))
            except InvalidArgument as error:
                if aside is None:
                    raise
                errors.append(error)
                reason = str(error).removeprefix(f"{file.resolve()} ")
                aside[str(file)] = Aside(reason, getattr(error, "line", None))
        if len(errors) > failed and name and not any(hasattr(one, name) for one in loaded):
            continue  # it may be in what does not import
        for check, own in _select(loaded, path, name):
            # a file may import another's check, and make another module of that file
            places = {(check.title, check.address()), (check.title, id(own))}
            if not places & known:
                found.append(check)
            known |= places
    if not found and errors:
        raise NothingImports(str(errors[0]), aside or {})
    if not found:
        over = "".join(f"; {reasons.in_a_list(*held)}" for held in passed_over(targets))
        raise InvalidArgument(f"no Check found in {', '.join(targets)}{over}")
    return found


def without_checks(targets: Iterable[str], aside: Mapping[str, Aside]) -> list[str]:
    """The files and folders among targets in which there is no check, though all of it imports."""
    each = [(path, files_at(path)) for path, name in map(parted, targets) if not name]
    return [
        path
        for path, files in each
        if not any(str(file) in aside or checks_in(str(file.resolve())) for file in files)
    ]


def passed_over(targets: Iterable[str]) -> list[tuple[str, str, int]]:
    """Of the files among targets, which import: variables that hold checks in a list, say, which
    no variable has by itself and so do not run, and how many."""
    found = []
    for file in (f for path, name in map(parted, targets) if not name for f in files_at(path)):
        own = _modules_of(str(file.resolve()))
        held = {id(check) for module in own for _, check in _held(module)}
        for module in own[:1]:
            for variable, value in list(vars(module).items()):
                checks = _within(value, module) if not issubclass(type(value), Check) else ()
                if count := sum(id(one) not in held for one in checks):
                    found.append((str(file), variable, count))
    return found


def _within(value: object, module: ModuleType, levels: int = 4) -> list[Check]:
    """The checks in a list, in lists of it too, or among the attributes of the module's class."""
    if issubclass(type(value), Check):
        return [value]  # type: ignore[list-item]
    parts = _parts(value, module) if levels else []
    return [check for one in parts for check in _within(one, module, levels - 1)]


def _parts(value: Any, module: ModuleType) -> list[object]:
    """What a container of Python's own holds, by its own means: those of a subclass may do more."""
    kind = type(value)
    for own in (dict, list, tuple, set, frozenset, deque):
        if issubclass(kind, own):
            held = dict.values(value) if own is dict else own.__iter__(value)
            return list(held)
    of_module = issubclass(kind, type) and value.__module__ == module.__name__
    return list(vars(value).values()) if of_module or kind is SimpleNamespace else []


def runnable(checks: Iterable[Check]) -> tuple[list[Check], dict[str, str]]:
    """The checks whose spec can run here, and of each other one, title → why it can't;
    the title with its address where another of `checks` has the same one."""
    every = list(checks)
    reasons = [_cannot_run(check) for check in every]
    told = zip(titles(every), reasons, strict=True)
    absent = {title: reason for title, reason in told if reason is not None}
    able = [check for check, reason in zip(every, reasons, strict=True) if reason is None]
    return able, absent


def _cannot_run(check: Check) -> str | None:
    """Why the check can't run here. One whose spec can't say is kept, and told of in its turn."""
    try:
        return check.spec.cannot_run()
    except InvalidArgument:
        return None


def checks_in(file: str) -> set[str]:
    """The variables of an imported file that hold checks."""
    return {variable for module in _modules_of(file) for variable, _ in _held(module)}


def _modules_of(file: str) -> list[ModuleType]:
    """Those that an imported file is: by its own name, and by that of a package, say."""
    return [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]


def modules(paths: Iterable[str]) -> list[ModuleType]:
    """Every Python file at `paths`, imported."""
    return [load(file) for path in paths for file in files_at(path)]


def _select(found: list[ModuleType], path: str, name: str) -> list[tuple[Check, Check]]:
    """Those that are asked for, each as it is to run and as its variable holds it."""
    each = [(module, *held) for module in found for held in _held(module)]
    names = {variable for _, variable, _ in each}
    if name and name not in names:
        hint = did_you_mean(name, names)
        if any(_within(vars(module).get(name), module) for module in found):
            hint = ": it holds checks; give the one that is meant a variable of its own"
        raise InvalidArgument(f"{path} has no check {name!r}{hint}")
    return [
        (check.named(check.name or variable, at=_place(check, module, variable)), check)
        for module, variable, check in each
        if name in ("", variable)
    ]


def _held(module: ModuleType) -> list[tuple[str, Check]]:
    return [(k, v) for k, v in list(vars(module).items()) if issubclass(type(v), Check)]


def _place(check: Check, module: ModuleType, variable: str) -> Address:
    """Where the check is to be found: in the file that makes it, where others import it from."""
    seen: set[str] = set()
    while module.__name__ not in seen:
        seen.add(module.__name__)
        for home, name in _imported(module, variable):
            if vars(home).get(name) is check and str(getattr(home, "__file__", "")).endswith(".py"):
                module, variable = home, name
                break
    return str(module.__file__), variable


def _imported(module: ModuleType, variable: str) -> Iterator[tuple[ModuleType, str]]:
    """The modules that a module may import this variable from, and what it is called there."""
    for node in _imports(str(module.__file__)):
        names = [a.name for a in node.names if a.name == "*" or (a.asname or a.name) == variable]
        path = "." * node.level + (node.module or "")
        with contextlib.suppress(ImportError, ValueError):
            home = sys.modules.get(importlib.util.resolve_name(path, module.__package__))
            yield from ((home, variable if n == "*" else n) for n in names if home is not None)


@functools.lru_cache(64)
def _imports(file: str) -> list[ast.ImportFrom]:
    """What a file that was imported imports names from."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # it may have changed by now
        nodes = ast.walk(ast.parse(Path(file).read_bytes()))
        return [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return []


def load(file: Path) -> ModuleType:
    """Imports a file as a module of its own: under its dotted name where it is in a package
    tree below the working folder, else under its stem."""
    file = file.resolve()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(file):
            return module
    for folder in (Path.cwd(), file.parent, root(file)):
        make_importable(folder)
    name, torch_before = "", guard.of_import()
    try:
        with one_process(), own_settings.noted(str(file)):
            name = _module_name(file)  # imports the packages that it is in
            if "." in name:  # as its neighbours will
                module = _required(importlib.import_module(name), file)
            else:
                module = _execute(name, file)
        require_own(file)
        return module
    except BaseException as error:
        let_through(error)
        sys.modules.pop(name, None)  # half of it: whoever asks again is told the same
        if isinstance(error, InvalidArgument):
            raise declared_at(file, error) from None
        raise does_not_import(file, error) from None
    finally:
        # references run with torch as it is, whatever files have made of it for their candidates
        torch_before.restore(own=packages_beside())


def _required(module: object, file: Path) -> ModuleType:
    """What was imported, which may have put something else in its place."""
    if not isinstance(module, ModuleType):
        given = type(module).__name__
        raise InvalidArgument(f"{file} replaces itself by a {given}, in which no check is found")
    return module


def _execute(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _module_name(file: Path) -> str:
    """`properties.linear` where an import would find this very file, else a name of its own."""
    for base in {Path.cwd(), root(file)}:
        parts = file.relative_to(base).with_suffix("").parts if file.is_relative_to(base) else ()
        name = ".".join(parts)
        if parts and all(part.isidentifier() for part in parts) and _finds(name, file):
            return name
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:8]
    return f"tpcheck_checks_{file.stem.replace('.', '_')}_{digest}"


def _finds(name: str, file: Path) -> bool:
    """Whether `import name` leads to this file."""
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file
