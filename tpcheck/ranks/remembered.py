"""What a function keeps of its inputs between calls, and gives where it no longer holds: by their
objects, their memory, or the `id` of an object that is no more. Scripts carry it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter


def remembered(
    call: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    inputs: Mapping[str, Tensor],
    others: Mapping[str, Tensor],
) -> Iterator[tuple[Mapping[str, Tensor], dict[str, Tensor]]]:
    """Outputs on other tensors, and of what is met again with their numbers: they are alike unless
    something is kept. Meanwhile the other tensors have these numbers.

    The inputs change in place, as parameters do after an optimizer's step. Then others are in their
    memory, as after it was given back; and others again, which are objects of the same `id`, too.
    Ends where other numbers are not allowed.

    Args:
        call: inputs → outputs, and what else comes of them.
        inputs: on which it has been called.
        others: of which none is an input.
    """
    with contextlib.suppress(Exception):
        each = {id(tensor): tensor for tensor in inputs.values()}  # two may be one
        for tensor in each.values():
            tensor.detach().copy_(_other(tensor, 0.5))
        numbers = [_copies(inputs)]
        for at in (0.25, 0.75):
            numbers += [{name: _other(one, at) for name, one in numbers[-1].items()}]
        found = [_copies(call(inputs))]
        objects = {key: _anew(one) for key, one in each.items()}
        for own in numbers[1:]:
            for name, one in own.items():
                inputs[name].data.copy_(one)
            found += [_copies(call({name: objects[id(one)] for name, one in inputs.items()}))]
            for key, one in each.items():
                del objects[key]
                objects[key] = _anew(one)  # at once: an object that is made next gets its `id`
        for own, given in zip(numbers, found, strict=True):
            for name, one in own.items():
                others[name].detach().copy_(one)
            yield call(others), given


def _other(tensor: Tensor, at: float) -> Tensor:
    """Other numbers of their kind; integers between the least and the largest of them."""
    own = tensor.detach()
    if own.is_floating_point():
        return at - own
    if own.dtype is torch.bool:
        return own.logical_not()
    return own.min() + own.max() - own if own.numel() else own.clone()


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An output may be an input, which is about to change."""
    return {name: one.detach().clone() for name, one in tensors.items()}


def _anew(tensor: Tensor) -> Tensor:
    """Another tensor of the same memory, of the version of a new one; on the CPU over a storage of
    its own, as memory that was given back has. No tensor is made before it that stays: it is to
    have the `id` of the one that went last."""
    memory = tensor.untyped_storage()
    if memory.device.type != "cpu" or not memory.nbytes():
        return tensor.data.requires_grad_(tensor.requires_grad)
    held = (ctypes.c_char * memory.nbytes()).from_address(memory.data_ptr())
    held.memory = memory  # type: ignore[attr-defined]  # stays as long as the other is kept
    own = torch.frombuffer(held, dtype=torch.uint8).untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype)
    with _unsafe_preserve_version_counter(made):
        made.set_(own, tensor.storage_offset(), tensor.shape, tensor.stride())
    return made.requires_grad_(tensor.requires_grad)
