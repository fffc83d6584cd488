"""The bits of tensors, and of the memory around them, before and after something ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tpcheck.evidence import Undisciplined
from tpcheck.ranks.memory import all_bytes
from tpcheck.tensors.forms import OF_BITS, dense, is_freed, odd
from tpcheck.tensors.reserved import is_sparse
from tpcheck.vocabulary import Habit

Tensors = Mapping[str, Tensor]


class Kept:
    """The bits of tensors and of the memory around them, as they are now. Tensors of a form
    that can't be compared are left out."""

    def __init__(self, tensors: Tensors) -> None:
        self._given = {name: t for name, t in tensors.items() if _is_there(t) and t.numel()}
        self.tensors = {name: t.detach() for name, t in self._given.items()}
        self._before = {name: _kept(t) for name, t in self.tensors.items()}
        self._told: set[str] = set()

    def changed(self, habit: Habit) -> Iterator[tuple[str, Undisciplined]]:
        """What has changed since: elements of each, which are told once, or bytes beside it."""
        for name, tensor in self.tensors.items():
            elements, beside = (0, 0) if name in self._told else self._changed(name, tensor)
            if elements:
                self._told.add(name)
            if elements or beside:
                yield name, Undisciplined(habit, elements or None, beside)

    def overwritten(self, habit: Habit) -> Iterator[tuple[str, Undisciplined]]:
        """Of what was returned: elements that have changed since. What is beside them is the
        candidate's own memory, of which it may use another part."""
        return ((name, found) for name, found in self.changed(habit) if found.elements)

    def _changed(self, name: str, tensor: Tensor) -> tuple[int, int]:
        """Elements that have other bits, and, where none has, bytes around them."""
        before, own = self._before[name], self._given[name].detach()
        if is_sparse(tensor):
            return _other_bits(tensor, before), 0
        now = all_bytes(tensor)
        if _place(own) == _place(tensor) and torch.equal(now, before):
            return 0, 0
        if not _is_there(tensor) or not _is_there(own):  # its memory was given back
            return tensor.numel(), 0
        if (own.shape, own.dtype) != (tensor.shape, tensor.dtype):  # `x.data = …`, `x.set_(…)`
            return tensor.numel(), 0
        whole = _same_place(tensor, before)
        if elements := _other_bits(tensor, whole) or _other_bits(own, whole):
            return elements, 0
        common = min(now.numel(), before.numel())  # memory may have grown behind it
        return 0, int((now[:common] != before[:common]).sum())


class Returned:
    """Gradients as backward returns them: what is in `grad` may be a copy.

    `changed` is what later calls and their backwards have overwritten of them.
    """

    def __init__(self) -> None:
        self.changed: dict[str, Undisciplined] = {}
        self._kept: list[Kept] = []  # of one call each: it may have several buffers

    @contextmanager
    def by(self, leaves: Tensors, beside: Iterable[Tensor]) -> Iterator[None]:
        """One call's backward in the block gives gradients of the leaves. Those in the memory of
        tensors beside it, which may be given other numbers, are not looked at."""
        found: dict[str, Tensor] = {}
        hooks = [
            leaf.register_hook(partial(found.__setitem__, name))
            for name, leaf in leaves.items()
            if leaf.requires_grad
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for kept in self._kept:
            for name, one in kept.overwritten(Habit.REUSES_GRADIENT):
                self.changed.setdefault(name, one)
        own = {tensor.untyped_storage().data_ptr() for tensor in beside}
        there = {name: one for name, one in found.items() if _is_there(one)}
        apart = [n for n, one in there.items() if one.untyped_storage().data_ptr() not in own]
        self._kept.append(Kept({name: there[name] for name in apart}))


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _is_there(tensor: Tensor) -> bool:
    """Whether it has a storage, which reaches to its last element."""
    return odd(tensor) is None and not is_freed(tensor)


def _other_bits(one: Tensor, other: Tensor) -> int:
    """How many elements have other bits: of -0.0 and 0.0, too, and not of a NaN and the same."""
    integers = OF_BITS.get(one.element_size())
    if integers is None:
        return differ(one, other)
    return int((one.view(integers) != other.view(integers)).sum())


def _kept(tensor: Tensor) -> Tensor:
    """A copy of all of its storage, or of its elements where they are far apart."""
    return tensor.clone() if is_sparse(tensor) else all_bytes(tensor).clone()


def _same_place(tensor: Tensor, memory: Tensor) -> Tensor:
    """The tensor, as it is in a copy of its storage."""
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    offset, shape, strides = tensor.storage_offset(), tensor.shape, tensor.stride()
    return empty.set_(memory.untyped_storage(), offset, shape, strides)


def differ(one: Tensor, other: Tensor) -> int:
    """How many elements have other bits; a NaN is like any other."""
    differ = one != other
    if one.is_floating_point():
        differ &= ~(one.isnan() & other.isnan())
    return int(differ.sum())


def same(first: Tensors, second: Tensors) -> bool:
    """Whether all of the first are there again, bit by bit."""
    return not any(lacking(one, second.get(name)) for name, one in first.items())


def lacking(one: Tensor, other: Tensor | None) -> int:
    """How many elements are not there again; what is not there is zero."""
    if other is None:
        return int(dense(one.detach()).count_nonzero())
    if one.shape != other.shape:
        return max(one.numel(), other.numel())
    return differ(dense(one.detach()), dense(other.detach()))
