"""Arguments that a function may change in place: autograd forbids that of a leaf."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor


def changing(function: Callable[..., Any], places: Collection[int]) -> Callable[..., Any]:
    """The function, its arguments at `places` handed to it as tensors that are not leaves, in the
    same memory."""

    def call(*tensors: Tensor, **options: Any) -> Any:
        given = (handed(t) if i in places else t for i, t in enumerate(tensors))
        return function(*given, **options)

    return call


def given(inputs: Mapping[str, Tensor], changing: Collection[str]) -> dict[str, Tensor]:
    """What a call gets for these inputs: those that it may change are not leaves."""
    names = {name for name, t in inputs.items() if name in changing and t.requires_grad}
    return {name: handed(t) if name in names else t for name, t in inputs.items()}


def handed(leaf: Tensor) -> Tensor:
    """A tensor in the leaf's memory that is not a leaf, and whose gradient is the leaf's."""
    return _Handed.apply(leaf)


class _Handed(torch.autograd.Function):
    """A tensor in a leaf's memory, whose gradient is the leaf's."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor) -> Tensor:
        own = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        place = (leaf.untyped_storage(), leaf.storage_offset(), leaf.size(), leaf.stride())
        return own.set_(*place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient
