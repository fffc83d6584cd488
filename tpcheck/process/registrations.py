"""Kernels that code registers for torch's own operators (`torch.library`), in place of torch's."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch

from tpcheck.process.aspects import Aspect

#: Namespaces of torch's own operators.
_OWN = ("aten", "prims", "c10d", "_c10d_functional")

#: What was registered when it was last read, and of that what counts.
_read: tuple[set[str], dict[str, bool]] = set(), {}


def operators() -> Aspect:
    """Of which operators, on which device, another kernel is registered: `aten/mm/CPU`."""
    return Aspect("torch.library.Library.impl", _registered, _unregister, kept=_with_those_of)


def _registered() -> dict[str, bool]:
    global _read
    known: set[str] = getattr(torch.library, "_impls", set())  # all that Python has registered
    if known != _read[0]:  # thousands of keys, which hardly ever change
        own = {key for key in known if key.partition("/")[0] in _OWN} - _of_torch()
        _read = known.copy(), dict.fromkeys(own, True)
    return _read[1]


def _of_torch() -> set[str]:
    """What torch's own modules hold the libraries of, some of which they fill when they are first
    used, as `torch.vmap` does."""
    own = [module for name, module in list(sys.modules.items()) if name.startswith("torch.")]
    return {key for module in own for held in _libraries(module) for key in held._op_impls}


def _unregister(before: dict[str, bool]) -> None:
    """Takes away what came since: the libraries that hold it, whole."""
    new = _registered().keys() - before.keys()
    for held in gc.get_objects():
        if type(held) is torch.library.Library and new & held._op_impls:
            held._destroy()


def _with_those_of(before: dict[str, bool], modules: Iterable[ModuleType]) -> dict[str, bool]:
    """With what modules have registered when they were imported: they hold the library, but that
    torch's own leave it to torch for operators outside of aten."""
    found = list(modules)
    own = {key for module in found for held in _libraries(module) for key in held._op_impls}
    if any(getattr(module, "__name__", "").startswith("torch.") for module in found):
        own |= {key for key in _registered() if not key.startswith("aten/")}
    return before | {key: True for key in _registered() if key in own}


def _libraries(module: ModuleType) -> Iterator[torch.library.Library]:
    values: list[Any] = list(getattr(module, "__dict__", {}).values())
    yield from (value for value in values if type(value) is torch.library.Library)
