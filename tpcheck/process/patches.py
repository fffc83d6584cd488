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
        named = vars(owner)
        held = {
            name: value for name, value in named.items() if callable(value) or _is_method(value)
        }
        held.pop("Storage", None)  # torch's follows the default dtype
        self.names = tuple(held)
        self.values = tuple(held.values())
        self._whole = tuple(named.values())

    def restore(self) -> list[Left]:
        """Puts back what was replaced or taken away; says what."""
        space = vars(self.owner)
        # nearly always nothing is new; `is` calls no `__eq__` of a user's, and `map` stays in C
        if len(space) == len(self._whole) and all(map(operator.is_, space.values(), self._whole)):
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


def namespaces() -> list[Namespace]:
    """Those whose functions code is likely to replace, of what is loaded now."""
    loaded = [sys.modules[name] for name in _MODULES if name in sys.modules]
    layers = {kind for kind in vars(nn).values() if isinstance(kind, type)}
    classes = {torch.Tensor, torch.autograd.Function, torch.Generator, nn.Module, *layers}
    own = {dist.ProcessGroup, dist.Work, torch.distributed.device_mesh.DeviceMesh}
    tensors = sys.modules.get("torch.distributed.tensor")
    more = {tensors.DTensor} if tensors is not None else set()
    kinds = sorted(classes | own | more, key=lambda kind: (kind.__module__, kind.__qualname__))
    return [Namespace(owner) for owner in (*loaded, *_OTHERS, *kinds)]
