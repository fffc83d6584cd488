"""The buffers of a module that is walked over the data of several dp coordinates in turn."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from tpcheck.protocol.conventions import state_buffers
from tpcheck.protocol.problem import Values
from tpcheck.training import Training
from tpcheck.vocabulary import Kind

T = TypeVar("T")

_Form = tuple[torch.Size, torch.dtype]


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
        for prefix, owner in self.module.named_modules():
            kept = self._kept[i].get(prefix, {})
            _leave_out(owner, kept)
            for name, own in kept.items():
                _put(owner, name, own)

    def left(self, i: int, known: Container[str], training: Training | None) -> Values:
        """What the forwards of a coordinate have left in the buffers that are known: nothing was
        drawn of those that a forward has made."""
        self._put(i)
        left = state_buffers(self.module, training)
        kept = {name: buffer for name, buffer in left if name.base in known}
        return {(Kind.PARAM, str(name)): b.detach().clone() for name, b in kept.items()}

    def _now(self) -> dict[str, dict[str, Tensor | None]]:
        """By module and name."""
        if self._alone:
            return {}
        return {
            prefix: {n: b if b is None else b.detach().clone() for n, b in owner._buffers.items()}
            for prefix, owner in self.module.named_modules()
        }


#: Module → the shape and dtype of each buffer that it was built with; None of one that is None.
_BUILT: WeakKeyDictionary[nn.Module, dict[str, _Form | None]] = WeakKeyDictionary()


def remember(module: nn.Module) -> None:
    """Which buffers it has now, that it is built."""
    for owner in module.modules():
        _BUILT[owner] = {name: _form(buffer) for name, buffer in owner._buffers.items()}


def as_built(module: nn.Module) -> None:
    """It has the buffers that it was built with, whatever forwards have put in their places since:
    what is then in those is still to be filled in."""
    for owner in module.modules():
        if owner._buffers and (built := _BUILT.get(owner)) is not None:
            _leave_out(owner, built)
            for name, form in built.items():
                if _form(owner._buffers.get(name)) != form:
                    owner._buffers[name] = form and torch.empty(form[0], dtype=form[1])


def _form(buffer: Tensor | None) -> _Form | None:
    return None if buffer is None else (buffer.shape, buffer.dtype)


def _put(owner: nn.Module, name: str, own: Tensor | None) -> None:
    """Gives a buffer these numbers: in place, unless a forward has put another one there."""
    buffer = owner._buffers.get(name)
    if own is None or buffer is None or _form(buffer) != _form(own):
        owner._buffers[name] = own if own is None else own.clone()
        return
    with torch.no_grad():
        buffer.copy_(own)


def _leave_out(owner: nn.Module, known: Container[str]) -> None:
    """Takes away the buffers that are not known."""
    for name in [*owner._buffers]:
        if name not in known:
            delattr(owner, name)
