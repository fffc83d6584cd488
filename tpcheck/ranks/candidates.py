"""The candidates that a process has loaded."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import cloudpickle

from tpcheck.comms import frames
from tpcheck.process import environment
from tpcheck.protocol.messages import Teach


class FileFinder(importlib.abc.MetaPathFinder):
    """Finds by file the driver's modules that no path leads to: a user's check file, a test
    module that pytest imported by path. Consulted last."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        file = self.files.get(name)
        return importlib.util.spec_from_file_location(name, file) if file else None


class Candidates:
    """By key: each with its spec's callables. There is one in a process."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self._finder = FileFinder()
        sys.meta_path.append(self._finder)

    def learn(self, given: Teach) -> str | None:
        """Unpickles a candidate and its spec's callables; an error becomes a line."""
        return self._done(
            given, lambda: self.parts.update({given.key: cloudpickle.loads(given.blob)})
        )

    def find(self, given: Teach) -> str | None:
        """Imports the modules that a candidate needs; an error becomes a line."""
        return self._done(given, lambda: [*map(importlib.import_module, given.modules)])

    def _done(self, given: Teach, load: Callable[[], object]) -> str | None:
        environment.give(given.variables)
        sys.path[:] = given.paths
        self._finder.files.update(given.files)
        try:
            load()
        except BaseException as error:  # also one that exits
            with contextlib.suppress(Exception):  # of a class that can't be shown
                traceback.print_exc()
            return f"{frames.kind_of(error)}: {frames.line_of(error)}"
        return None
