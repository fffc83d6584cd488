"""Functions and classes of torch, and of Python, that code may replace with its own.

A namespace is a module or a class; what it had when it was first read must be there afterwards.
What is new, and what is not callable, changes by itself: submodules are imported, counters count.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
import random
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tpcheck.process.aspects import Left
from tpcheck.process.versions import version

#: Modules whose functions candidates patch, with the classes that they define.
_MODULES = (
    "torch",
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
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.random",
    "torch.utils.checkpoint",
)
_OTHERS = (functools, math, operator, random, time)


class Namespace:
    """A module or class, with what it held."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._version = version(owner)
        named = vars(owner)
        held = {
            name: value for name, value in named.items() if callable(value) or _is_method(value)
        }
        held.pop("Storage", None)  # torch's follows the default dtype
        self.names = tuple(held)
        self.values = tuple(held.values())
        self._whole = tuple(named.values())

    @property
    def untouched(self) -> bool:
        """Whether it surely holds what it held; where that can't be told at a glance, False."""
        return self._version is not None and self._version == version(self.owner)

    def restore(self) -> list[Left]:
        """Puts back what was replaced or taken away; says what."""
        if self.untouched:
            return []
        now, space = version(self.owner), vars(self.owner)
        # `is` calls no `__eq__` of a user's, and `map` stays in C
        if len(space) == len(self._whole) and all(map(operator.is_, space.values(), self._whole)):
            self._version = now
            return []
        found = []
        for name, old in zip(self.names, self.values, strict=True):
            if space.get(name) is not old:
                with contextlib.suppress(TypeError, AttributeError):  # of a type made in C
                    setattr(self.owner, name, old)
                whose = self.owner.__name__
                if isinstance(self.owner, type):
                    whose = f"{self.owner.__module__}.{self.owner.__qualname__}"
                found.append(Left(f"{whose}.{name}", vars(self.owner).get(name) is old))
        self._version = version(self.owner)
        self._whole = tuple(vars(self.owner).values())
        return found


class Builtins:
    """Python's own functions. Without them nothing here works: they are put back, by methods that
    are at hand, before anything is asked."""

    def __init__(self) -> None:
        self._copy, self._put = builtins.__dict__.copy, builtins.__dict__.update
        self._held = self._copy()

    def restore(self) -> list[Left]:
        """Puts back what was replaced or taken away; says what."""
        now = self._copy()
        self._put(self._held)
        held = self._held.items()
        odd = [name for name, value in held if now.get(name) is not value and callable(value)]
        return [Left(f"builtins.{name}", restored=True) for name in odd]


def _is_method(value: Any) -> bool:
    # of its type: torch.distributed has an object that warns when its class is asked for
    return issubclass(type(value), (staticmethod, classmethod, property))


#: Those that were read before, by the number of their owner. A forked process has them from its
#: parent, and need not read again what has not changed.
_read: dict[int, Namespace] = {}


def namespaces() -> list[Namespace]:
    """Those whose functions code is likely to replace, of what is loaded now."""
    loaded = [sys.modules[name] for name in _MODULES if name in sys.modules]
    layers = {kind for kind in vars(nn).values() if isinstance(kind, type)}
    classes = {torch.Tensor, torch.autograd.Function, torch.Generator, nn.Module, *layers}
    own = {dist.ProcessGroup, dist.Work, torch.distributed.device_mesh.DeviceMesh}
    tensors = sys.modules.get("torch.distributed.tensor")
    more = {tensors.DTensor} if tensors is not None else set()
    kinds = sorted(classes | own | more, key=lambda kind: (kind.__module__, kind.__qualname__))
    return list(map(_namespace, (*loaded, *_OTHERS, *kinds)))


def _namespace(owner: Any) -> Namespace:
    known = _read.get(id(owner))
    if known is None or known.owner is not owner or not known.untouched:
        known = _read[id(owner)] = Namespace(owner)
    return known
