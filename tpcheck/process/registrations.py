"""Kernels that code registers for torch's own operators (`torch.library`), in place of torch's."""

from __future__ import annotations

import gc

import torch

from tpcheck.process.aspects import Aspect

#: Namespaces of torch's own operators.
_OWN = ("aten", "prims", "c10d", "_c10d_functional")


def operators() -> Aspect:
    """Of which operators, on which device, another kernel is registered: `aten/mm/CPU`."""
    return Aspect("torch.library.Library.impl", _registered, _unregister)


def _registered() -> dict[str, bool]:
    known: set[str] = getattr(torch.library, "_impls", set())  # all that Python has registered
    return {key: True for key in known if key.partition("/")[0] in _OWN}


def _unregister(before: dict[str, bool]) -> None:
    """Takes away what came since: the libraries that hold it, whole."""
    new = _registered().keys() - before.keys()
    for held in gc.get_objects():
        if type(held) is torch.library.Library and new & held._op_impls:
            held._destroy()
