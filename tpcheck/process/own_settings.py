"""What a file of checks sets in the driver by its own lines when it is imported: variables of the
environment, the path, what is done with warnings, names of modules beside it; the names also while
its checks run. It holds while that file's own checks run, as it would if they ran alone, and for
nobody else.

What a module sets while it is imported stays: the next who imports it would not see it set again.
The folder and the umask are put back, and hold for nobody.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from tpcheck.process import environment, surroundings
from tpcheck.process.loaded import is_installed

#: In the place of a name that there is not.
_NONE = object()


@dataclass(frozen=True)
class _Change:
    """Something that was set.

    Args:
        read, write: its value.
        after: what it was set to.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    after: Any


@dataclass
class _Own:
    """What is one file's.

    Args:
        settings: set on import.
        names: of modules beside it, set on import or while its checks ran.
    """

    settings: list[_Change] = field(default_factory=list)
    names: list[_Change] = field(default_factory=list)


_of_files: dict[str, _Own] = {}


@contextlib.contextmanager
def noted(file: str) -> Iterator[None]:
    """The block imports a file of checks. What it sets is put back after it, and remembered."""
    environment.watch()
    before = _read()
    importing = _Importing(file)
    try:
        with environment.importing(file), importing:
            yield
    finally:
        kept = before | {
            "environment": environment.kept(before["environment"]),
            "path": _with(importing.paths, before["path"]),
            "filters": surroundings.calm(before["filters"]),
        }
        _of_files[file] = _Own([*_set_since(kept)], _names_put_back(file))
        _write(kept)


@contextlib.contextmanager
def in_force(file: str | None) -> Iterator[None]:
    """In the block, in which checks of this file run, what it has set holds, and what they set in
    modules beside it is added to that."""
    own = _of_files.get(file or "")
    if file is None or own is None:
        yield
        return
    before = [(change, change.read()) for change in own.settings]
    for change in (*own.settings, *own.names):
        change.write(change.after)
    try:
        yield
    finally:
        own.names = _names_put_back(file)
        for change, value in reversed(before):
            change.write(value)


def _read() -> dict[str, Any]:
    return {
        "environment": environment.read(),
        "path": surroundings.search_path(),
        "filters": surroundings.filters(),
        "folder": surroundings.folder(),
        "umask": surroundings.umask(),
    }


def _write(value: dict[str, Any]) -> None:
    environment.write(value["environment"])
    surroundings.set_search_path(value["path"])
    surroundings.set_filters(value["filters"])
    with contextlib.suppress(OSError):  # it is gone
        surroundings.set_folder(value["folder"])
    os.umask(value["umask"])


def _with(paths: list[str], before: list[str]) -> list[str]:
    """The path with what modules have put on it, where they put it last or first."""
    now = surroundings.search_path()
    first = [path for path in now[: _common(now, before)] if path in paths]
    return [*first, *before, *(p for p in paths if p not in first and p not in before)]


def _common(now: list[str], before: list[str]) -> int:
    """Where what was there before begins."""
    return next((i for i, path in enumerate(now) if path in before), len(now))


def _set_since(kept: dict[str, Any]) -> Iterator[_Change]:
    """What is otherwise now, and is the file's own."""
    old, new = kept["environment"], environment.read()
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            write = partial(environment.set_variable, name)
            yield _Change(partial(os.environ.get, name), write, new.get(name))
    if (path := surroundings.search_path()) != kept["path"]:
        yield _Change(surroundings.search_path, surroundings.set_search_path, path)
    if (filters := surroundings.filters()) != kept["filters"]:
        yield _Change(surroundings.filters, surroundings.set_filters, filters)


# ---- names of the modules beside it


class _Owner:
    """A module that is not installed, or a class that it defines, of which every name is looked
    after."""

    def __init__(self, module: str, space: Any) -> None:
        self.module, self.space = module, space

    def names(self) -> dict[str, Any]:
        """Without submodules, and without what Python itself writes into a module."""
        named = vars(self.space).items()
        whole = isinstance(self.space, type)
        return {
            n: v for n, v in named if not isinstance(v, ModuleType) and (whole or n[:2] != "__")
        }

    def since(self, old: dict[str, Any]) -> dict[str, Any]:
        """Name → value of what was set since it was `old`."""
        now = self.names()
        if len(now) == len(old) and all(map(operator.is_, now.values(), old.values())):
            return {}
        each = [(name, now.get(name, _NONE)) for name in old.keys() | now.keys()]
        return {name: value for name, value in each if value is not old.get(name, _NONE)}

    def read(self, name: str) -> Any:
        return vars(self.space).get(name, _NONE)

    def write(self, name: str, value: Any) -> None:
        with contextlib.suppress(TypeError, AttributeError):  # a class that takes no new names
            if value is not _NONE:
                setattr(self.space, name, value)
            elif name in vars(self.space):
                delattr(self.space, name)


#: What they held when they had been imported, and what other modules that were imported have set.
_held: dict[_Owner, dict[str, Any]] = {}


class _Importing:
    """While it is entered, a file of checks is imported.

    Args:
        file: that file: what its lines set is not the modules' that it imports.

    Attributes:
        paths: what those have put on the path.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.paths: list[str] = []
        self._depth = 0  # of modules that are being imported, one within the other
        self._new: list[_Owner] = []

    def __enter__(self) -> None:
        self._run = SourceFileLoader.exec_module

        def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
            if os.path.realpath(loader.path) == self.file:
                self._run(loader, module)
            else:
                self._execute(loader, module)

        SourceFileLoader.exec_module = exec_module  # type: ignore

    def __exit__(self, *error: object) -> None:
        SourceFileLoader.exec_module = self._run  # type: ignore

    def _execute(self, loader: SourceFileLoader, module: ModuleType) -> None:
        """What is set meanwhile is set for good."""
        outermost, path = self._depth == 0, surroundings.search_path()
        before = {owner: owner.names() for owner in _held} if outermost else {}
        self._depth += 1
        try:
            self._run(loader, module)
        finally:
            self._depth -= 1
            self.paths += [one for one in surroundings.search_path() if one not in path]
            if not is_installed(loader.path):
                self._new += _owners(module)
            for owner, old in before.items():
                _set(_held[owner], owner.since(old))
            if outermost:
                _held.update({owner: owner.names() for owner in self._new})
                self._new.clear()


def _names_put_back(file: str) -> list[_Change]:
    """What was set in modules other than the file itself, put back."""
    found = []
    for owner, old in _held.items():
        if getattr(sys.modules.get(owner.module), "__file__", None) == file:
            continue
        for name, value in owner.since(old).items():
            owner.write(name, old.get(name, _NONE))
            found.append(_Change(partial(owner.read, name), partial(owner.write, name), value))
    return found


def _owners(module: ModuleType) -> list[_Owner]:
    name = module.__name__
    classes = [c for c in [*vars(module).values()] if isinstance(c, type) and c.__module__ == name]
    return [_Owner(name, module), *(_Owner(name, one) for one in classes)]


def _set(held: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is _NONE:
            held.pop(name, None)
        else:
            held[name] = value
