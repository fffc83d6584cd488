"""The buffers of a module that is walked over the data of several dp coordinates in turn."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tpcheck.protocol.conventions import state_buffers
from tpcheck.protocol.problem import Values
from tpcheck.training import Training
from tpcheck.vocabulary import Kind

T = TypeVar("T")


class OwnBuffers:
    """Each coordinate begins with the buffers that there are, and goes on with what its own
    forwards left of them, as on its own ranks.

    Args:
        module: whose they are; a function has none.
        count: how many coordinates there are.
    """

    def __init__(self, module: Any, count: int) -> None:
        self.module, self._alone = module, count == 1 or not isinstance(module, nn.Module)
        self._kept = [self._now()] * count

    def each(self, coordinates: Sequence[T]) -> Iterator[T]:
        """The coordinates in turn, with the buffers of each in place."""
        for i, coordinate in enumerate(coordinates):
            self._put(i)
            yield coordinate
            self._kept[i] = self._now()

    def _put(self, i: int) -> None:
        """Puts those of a coordinate in place."""
        if self._alone:
            return
        with torch.no_grad():
            for name, buffer in list(self.module.named_buffers()):
                own = self._kept[i].get(name, buffer)
                if own.shape == buffer.shape and own.dtype == buffer.dtype:
                    buffer.copy_(own)
                else:  # a forward has put another one there
                    owner, _, leaf = name.rpartition(".")
                    self.module.get_submodule(owner)._buffers[leaf] = own.clone()

    def left(self, i: int, known: Container[str], training: Training | None) -> Values:
        """What the forwards of a coordinate have left in the buffers that are known: nothing was
        drawn of those that a forward has made."""
        self._put(i)
        left = state_buffers(self.module, training)
        kept = {name: buffer for name, buffer in left if name.base in known}
        return {(Kind.PARAM, str(name)): b.detach().clone() for name, b in kept.items()}

    def _now(self) -> dict[str, Tensor]:
        if self._alone:
            return {}
        return {name: b.detach().clone() for name, b in self.module.named_buffers()}
