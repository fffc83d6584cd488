"""Functions and classes of torch, and of Python, that code may replace with its own.

A namespace is a module or a class; what it had when it was first read must be there afterwards.
What is new, and what is not callable, changes by itself: submodules are imported, counters count.
But a new function that hides an inherited one, or one of Python's own, replaces that.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import math
import operator
import random
import sys
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tpcheck.process.aspects import Left
from tpcheck.process.loaded import modules_since
from tpcheck.process.versions import Versions

#: Modules whose functions candidates patch, with the classes that they define. Hypothesis is loaded
#: in the driver, where other checks draw their cases with it.
_MODULES = (
    "hypothesis",
    "hypothesis.strategies",
    "torch",
    "torch._C._fft",
    "torch._C._linalg",
    "torch._C._nn",
    "torch._C._special",
    "torch.amp",
    "torch.autograd",
    "torch.autograd.function",
    "torch.autograd.graph",
    "torch.distributed",
    "torch.distributed._functional_collectives",
    "torch.distributed.device_mesh",
    "torch.distributed.distributed_c10d",
    "torch.distributed.nn.functional",
    "torch.distributed.tensor",
    "torch.distributed.tensor._api",
    "torch.distributed.tensor.parallel",
    "torch.fft",
    "torch.func",
    "torch.functional",
    "torch.library",
    "torch.linalg",
    "torch.nested",
    "torch.nn",
    "torch.nn.attention",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.modules.module",
    "torch.nn.utils",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.stateless",
    "torch.overrides",
    "torch.random",
    "torch.signal.windows",
    "torch.sparse",
    "torch.special",
    "torch.utils._pytree",
    "torch.utils.checkpoint",
)
_OTHERS = (functools, json, math, operator, random, time)
#: Packages of which every module that is loaded is looked after.
_PACKAGES = ("torch.amp", "torch.nn.utils", "torch.optim")
_PREFIXES = tuple(f"{package}." for package in _PACKAGES)
#: Modules of which every class is, and of the packages all.
_WITH_CLASSES = ("torch.nn", "torch.distributed.tensor", "torch.distributed.tensor.parallel")
_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format, torch.Generator)
#: What is not callable and changes all the same only where somebody replaces it.
_CONSTANTS = (float, *_OF_TORCH, dist.ReduceOp.RedOpType)

#: Functions around functions that are looked into.
_DEEPEST = 32


class Namespace:
    """A module or class, with what it held."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        named = vars(owner)
        held = {name: value for name, value in named.items() if _is_fixed(value)}
        held.pop("Storage", None)  # torch's follows the default dtype
        self.names = tuple(held)
        self.values = tuple(held.values())
        self._others = frozenset(named) - frozenset(held)
        self._whole = tuple(named.values())

    def restore(self, new: Container[str] = ()) -> list[Left]:
        """Puts back what was replaced or taken away; says what.

        Args:
            new: packages whose own functions stay.
        """
        space = vars(self.owner)
        # `is` calls no `__eq__` of a user's, and `map` stays in C
        if len(space) == len(self._whole) and all(map(operator.is_, space.values(), self._whole)):
            return []
        found = []
        for name, old in zip(self.names, self.values, strict=True):
            now = space.get(name)
            if now is not old and not _is_of(now, new, old) and not _wraps(now, old):
                with contextlib.suppress(TypeError, AttributeError):  # of a type made in C
                    setattr(self.owner, name, old)
                found.append(self._left(name, vars(self.owner).get(name) is old))
        for name in [*space.keys() - set(self.names)]:
            if self._hides(name, now := space[name]) and not _is_of(now, new):
                with contextlib.suppress(TypeError, AttributeError):
                    delattr(self.owner, name)
                found.append(self._left(name, name not in vars(self.owner)))
        self._whole = tuple(vars(self.owner).values())
        return found

    def _hides(self, name: str, value: Any) -> bool:
        if name in self._others or not _is_fixed(value):
            return False
        if isinstance(self.owner, type):
            above = [vars(base)[name] for base in self.owner.__mro__[1:] if name in vars(base)]
            return bool(above) and not _wraps_inherited(value, above[0])
        return hasattr(builtins, name)

    def _left(self, name: str, restored: bool) -> Left:
        whose = self.owner.__name__
        if isinstance(self.owner, type):
            whose = f"{self.owner.__module__}.{self.owner.__qualname__}"
        return Left(f"{whose}.{name}", restored)


class Namespaces:
    """Those whose functions code is likely to replace.

    Args:
        loaded: the modules, of `_MODULES`, that are loaded.
        spaces: as they were once; shared by all processes that are forked from this one.
        own: index → what is held in its place.
    """

    def __init__(
        self,
        loaded: tuple[str, ...],
        spaces: Sequence[Namespace],
        own: Mapping[int, Namespace],
        versions: Versions,
    ) -> None:
        self._loaded, self._spaces, self._own, self._versions = loaded, spaces, own, versions
        self._modules = len(sys.modules)

    @classmethod
    def read(cls) -> Namespaces:
        """All as they are now."""
        loaded = _loaded()
        spaces = [Namespace(owner) for owner in _owners(loaded)]
        return cls(loaded, spaces, {}, Versions(space.owner for space in spaces))

    def anew(self) -> Namespaces:
        """As they are now: what has not changed is not read again."""
        changed = self._versions.changed
        # to look at all names would give a forked process a copy of each page that has one
        others = any(map(_is_looked_after, modules_since(self._modules)))
        if not changed and not others:
            return self
        new = {index: Namespace(self[index].owner) for index in changed}
        if others or any(_has_classes(space.owner.__name__) for space in new.values()):
            return self.read()
        return Namespaces(self._loaded, self._spaces, {**self._own, **new}, self._versions.anew())

    def __getitem__(self, index: int) -> Namespace:
        return self._own.get(index) or self._spaces[index]

    def restore(self, new: Container[str] = ()) -> list[Left]:
        """As `Namespace.restore`, of all of them."""
        if not (changed := self._versions.changed):
            return []
        found = [one for index in changed for one in self[index].restore(new)]
        self._versions.see()
        return found


class Builtins:
    """Python's own functions. Without them nothing here works: they are put back, by methods that
    are at hand, before anything is asked."""

    def __init__(self) -> None:
        self._copy, self._put = builtins.__dict__.copy, builtins.__dict__.update
        self._held = self._copy()

    def put_back(self) -> dict[str, Any]:
        """Puts back what was replaced or taken away; what was there."""
        now = self._copy()
        self._put(self._held)
        return now

    def restore(self, now: Mapping[str, Any], new: Container[str] = ()) -> list[Left]:
        """What of `now` was in the place of another; that of `new` packages is put there again."""
        held = self._held.items()
        odd = [name for name, value in held if now.get(name) is not value and callable(value)]
        own = {n: now[n] for n in odd if n in now and _is_of(now[n], new, self._held[n])}
        self._put(own)
        return [Left(f"builtins.{name}", restored=True) for name in odd if name not in own]


def _home(value: Any) -> str:
    """The package whose code made it, whatever it says of itself (`functools.wraps`)."""
    function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    module = getattr(function, "__globals__", {}).get("__name__")
    module = module or getattr(function, "__module__", None) or type(function).__module__
    return str(module).partition(".")[0]


def _is_of(value: Any, packages: Container[str], old: Any = None) -> bool:
    """Whether it is made by code of these packages, and each function that it wraps by theirs or
    torch's, down to the one that was there: torch, too, wraps what somebody else has put in an
    optimizer's class."""
    if _home(value) not in packages:
        return False
    for _ in range(_DEEPEST):
        value = getattr(value, "__wrapped__", None)
        if value is None or value is old:
            return True
        if (home := _home(value)) not in packages and home != torch.__name__:
            return False
    return False


def _wraps(value: Any, old: Any) -> bool:
    """Whether it is a function of torch's own around the one that was there: an optimizer's class
    has its `step` wrapped when the first one is made, `nn.Module` what makes one by Dynamo."""
    inside = [getattr(value, "__wrapped__", None)]
    with contextlib.suppress(ValueError):  # a cell is empty
        inside += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    return any(one is old for one in inside) and _home(value) == torch.__name__


def _wraps_inherited(value: Any, inherited: Any) -> bool:
    """As `_wraps`, of a class that has the function from its base (AdamW's `step` is Adam's),
    whether or not the base has had its own wrapped since."""
    inner = getattr(value, "__wrapped__", None)
    both = inner is not None and _wraps(value, inner) and _wraps(inherited, inner)
    return _wraps(value, inherited) or both


def _is_fixed(value: Any) -> bool:
    # of its type: torch.distributed has an object that warns when its class is asked for
    return callable(value) or issubclass(
        type(value), (staticmethod, classmethod, property, *_CONSTANTS)
    )


def _loaded() -> tuple[str, ...]:
    own = (name for name in _MODULES if name in sys.modules)
    return (*own, *sorted(name for name in list(sys.modules) if _is_within(name)))


def _is_looked_after(name: str) -> bool:
    return name in _MODULES or _is_within(name)


def _is_within(name: str) -> bool:
    return name.startswith(_PACKAGES) and f"{name}.".startswith(_PREFIXES)


def _has_classes(name: str) -> bool:
    return name in _WITH_CLASSES or _is_within(name)


def _owners(loaded: tuple[str, ...]) -> list[Any]:
    homes = [sys.modules[name] for name in loaded if _has_classes(name)]
    classes = {kind for home in homes for kind in vars(home).values() if isinstance(kind, type)}
    classes |= {torch.Tensor, torch.autograd.Function, torch.Generator, nn.Module}
    own = {dist.ProcessGroup, dist.Work, dist.ReduceOp, torch.distributed.device_mesh.DeviceMesh}
    # bases come first: what hides an inherited function is held against the one put back
    kinds = sorted(
        classes | own, key=lambda kind: (len(kind.__mro__), kind.__module__, kind.__qualname__)
    )
    return [*(sys.modules[name] for name in loaded), *_OTHERS, *kinds]


_read: Namespaces | None = None


def namespaces() -> Namespaces:
    """Those of what is loaded now, as they are now."""
    global _read
    _read = Namespaces.read() if _read is None else _read.anew()
    return _read
