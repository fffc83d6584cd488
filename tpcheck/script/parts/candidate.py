"""The candidate, imported without tpcheck."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(init=False, repr=False, eq=False)
class Standin:
    """Whatever the candidate's file takes from tpcheck to declare its checks, which are not run
    here: of a call it keeps what was given, and of `dataclasses.replace` what was changed."""

    _name: str
    _given: tuple[Any, ...]
    _named: dict[str, Any]

    running = False

    def __init__(
        self, _name: str, _given: tuple[Any, ...] = (), _named: Any = None, **changed: Any
    ) -> None:
        self._name, self._given, self._named = _name, _given, {**(_named or {}), **changed}

    def __getattr__(self, name: str) -> Standin:
        if name.startswith("__"):
            raise AttributeError(name)
        return Standin(f"{self._name}.{name}")

    def __call__(self, *given: Any, **named: Any) -> Standin:
        if Standin.running:
            raise NeedsTpcheck(f"the candidate itself calls {self._name}: it needs tpcheck")
        return Standin(self._name, given, named)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, key: Any) -> Standin:
        return self

    __or__ = __ror__ = __add__ = __mul__ = __getitem__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()


class NeedsTpcheck(Exception):
    """The candidate can't run without tpcheck."""


class Standins:
    """Imports `tpcheck` and all below it as stand-ins.

    Args:
        carried: modules that are real → their source.
    """

    def __init__(self, carried: Mapping[str, str]) -> None:
        self.carried = carried

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "tpcheck":
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__

        def below(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            full = f"{name}.{attribute}"
            if any(f"{other}.".startswith(f"{full}.") for other in self.carried):
                return importlib.import_module(full)
            return Standin(full)

        if name in self.carried:
            module.__file__ = f"{name.replace('.', '/')}.py"
            exec(compile(self.carried[name], module.__file__, "exec"), vars(module))
        else:
            module.__dict__["__getattr__"] = below


def candidate(module: str, path: str, carried: Mapping[str, str], folder: str = ".") -> Any:
    """What `path` is in a module; where that is a check, the candidate that it was given.

    Args:
        module: its name, or its file.
    """
    sys.path.insert(0, os.path.abspath(folder))
    if not any(isinstance(finder, Standins) for finder in sys.meta_path):
        sys.meta_path.insert(0, Standins(carried))
    Standin.running = False
    try:
        found = reduce(getattr, path.split("."), _imported(module))
    except Exception:
        traceback.print_exc()
        print(f"{module}: {path} does not import")
        sys.exit(2)
    Standin.running = True
    if not isinstance(found, Standin):
        return found
    kernel = found._name.endswith("kernel_check")
    named = found._named.get("fn" if kernel else "candidate")
    return found._given[0 if kernel else 1] if named is None else named


def _imported(module: str) -> Any:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(f"checked_{Path(module).stem}", module)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made
