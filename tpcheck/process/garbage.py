"""What is there for good, and is not looked through for garbage after each case."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor

_TENSORS = (Tensor, torch.nn.Parameter)
#: Tensors among what was set aside, which `gc.get_objects` has no longer.
_aside: list[weakref.ref[Tensor]] = []


def set_aside() -> None:
    """Leaves out of the search all that is there now."""
    found = [weakref.ref(one) for one in gc.get_objects() if type(one) in _TENSORS]
    _aside[:] = [known for known in (*_aside, *found) if known() is not None]
    gc.freeze()


def tensors() -> Iterator[Tensor]:
    """Those of this process, but for such of other classes."""
    yield from (one for one in gc.get_objects() if type(one) in _TENSORS)
    yield from (one for known in _aside if (one := known()) is not None)
