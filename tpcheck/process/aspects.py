"""One aspect of a process's state, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Aspect:
    """Something that code may leave changed.

    Args:
        name: what people know it by, the same in every run: a function of torch, an attribute.
        read: its value now, cheap enough for every case, comparable with `==`.
        write: puts a value back; None where nobody can.
        of_thread: whether each thread has its own.
        kept: of the value before and modules that were imported since, the value that holds from
            then on: libraries set things for good when they are loaded, and would not do so again.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object] | None = None
    of_thread: bool = False
    kept: Callable[[Any, Iterable[ModuleType]], Any] = lambda before, _: before


@dataclass(frozen=True)
class Left:
    """State that was left changed.

    Args:
        name: of the aspect, or of the function that was replaced.
        restored: whether it is as it was again; else the process is not to be used any more.
        which: the variables, threads or hooks meant, where it has several.
        driver: whether the spec's own code left it, in the driver.
    """

    name: str
    restored: bool
    which: tuple[str, ...] = ()
    driver: bool = False
