"""What is to be done once a package is imported, whoever imports it."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType


def after(package: str, act: Callable[[], object]) -> None:
    """Calls `act()` when the import of a package ends, once; asked for again, it waits already."""
    waiting = [finder for finder in sys.meta_path if isinstance(finder, After)]
    if all(finder.package != package for finder in waiting):
        sys.meta_path.insert(0, After(package, act))


class After(importlib.abc.MetaPathFinder):
    """Goes with the import that it waits for."""

    def __init__(self, package: str, act: Callable[[], object]) -> None:
        self.package, self.act = package, act

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self.package:
            return None
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self.act()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
