"""A guard: the state of this process when it was set, and what code has left changed since."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Set
from typing import Any

from tpcheck.process import environment
from tpcheck.process.aspects import Aspect, Left
from tpcheck.process.loaded import modules_since, package
from tpcheck.process.modes import of_torch
from tpcheck.process.patches import Builtins, namespaces
from tpcheck.process.registrations import operators
from tpcheck.process.surroundings import (
    imported,
    interpreter,
    keep_streams,
    resources,
    settings,
    streams,
)

#: What is named where the state can't even be read.
UNREADABLE = "the state of the process"
#: Of a dict that changed: how many of its keys are told.
TOLD = 5


class Guard:
    """Remembers the state from when it is made; later restores what was changed.

    Args:
        aspects: those to look after.
        functions: whether the functions of torch must stay what they are, too.

    Where modules were imported, what they have put in the place of functions is kept, and what
    aspects say of theirs.
    """

    def __init__(self, aspects: Iterable[Aspect], *, functions: bool = False) -> None:
        self._before = [(aspect, aspect.read()) for aspect in aspects]
        self._functions = functions
        self._know()

    def _know(self) -> None:
        self._imported = sys.modules.__len__()
        self._builtins = Builtins()
        self._spaces = namespaces() if self._functions else None

    def restore(self, own: Set[str] = frozenset()) -> list[Left]:
        """Puts the state back as it was; returns what was not. The functions come first: with one
        of them replaced nothing else can be read.

        Args:
            own: packages whose functions do not stay, although they were imported since.
        """
        left: list[Left] = []
        try:
            spaces = self._spaces
            builtins = {} if spaces is None else self._builtins.put_back()
            modules = modules_since(self._imported)
            new = frozenset(map(package, modules)) - own
            if spaces is not None:
                left = [*self._builtins.restore(builtins, new), *spaces.restore(new)]
            if sys.modules.__len__() != self._imported:
                self._know()
                foreign = [module for name, module in modules.items() if package(name) not in own]
                self._before = [(one, one.kept(old, foreign)) for one, old in self._before]
            now = [(aspect, old, aspect.read()) for aspect, old in self._before]
            changed = [one for one in now if one[1] != one[2]]
            return left + [_restored(*one) for one in changed]
        except Exception as error:  # what this itself is made of was replaced
            return [Left(UNREADABLE, restored=False, which=(type(error).__name__,))]


def _restored(aspect: Aspect, old: Any, new: Any) -> Left:
    done = False
    if aspect.write is not None:
        try:
            aspect.write(old)
            done = bool(aspect.read() == old)
        except Exception:  # a limit that can't be raised again, a handler that was not Python's
            done = False
    return Left(aspect.name, done, _which(old, new))


def _which(old: Any, new: Any) -> tuple[str, ...]:
    """Of a dict, the keys whose values differ."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return ()
    return tuple(sorted(str(k) for k in {**old, **new} if old.get(k) != new.get(k)))[:TOLD]


def read_ahead() -> None:
    """Reads what guards in processes that are forked from here then need not read again."""
    namespaces()
    of_torch()


def _every() -> list[Aspect]:
    return [*of_torch(), *settings(), *interpreter(), *resources()]


def of_rank() -> Guard:
    """All that a candidate may change in a process that is one rank."""
    return Guard(_every(), functions=True)


def of_thread() -> Guard:
    """What each thread has for itself, of a process whose threads are ranks."""
    return Guard([aspect for aspect in _every() if aspect.of_thread])


def of_all_threads() -> Guard:
    """What such threads share; to be asked in the main thread."""
    return Guard([aspect for aspect in _every() if not aspect.of_thread], functions=True)


def of_import() -> Guard:
    """What a file of checks may change of torch, and of what others are told by, in the driver
    when it is imported."""
    keep_streams()
    return Guard([*of_torch(), operators(), *imported()], functions=True)


def of_driver() -> Guard:
    """What a spec's callables may change in the driver. What it holds is tpcheck's own affair, and
    its user's."""
    environment.watch()
    keep_streams()
    return Guard([*of_torch(), operators(), *settings(), *streams()], functions=True)
