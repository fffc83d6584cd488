"""What a function keeps of its inputs between calls, and gives where it no longer holds: by their
objects, their memory, or the `id` of an object that is no more. Scripts carry it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.multiprocessing.reductions import StorageWeakRef


def remembered(
    call: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    inputs: Mapping[str, Tensor],
    others: Mapping[str, Tensor],
) -> Iterator[tuple[Mapping[str, Tensor], dict[str, Tensor]]]:
    """Outputs on other tensors, and of what is met again with their numbers: they are alike unless
    something is kept. Meanwhile the other tensors have these numbers.

    After a first call tensors change in place, as parameters do after an optimizer's step. Then
    they are given back, and others are in their memory, twice, which have their `id`, too. What the
    function holds is not given back, and changes in place. Ends where other numbers are not
    allowed.

    Args:
        call: inputs → outputs, and what else comes of them.
        inputs: the memory. The function sees other tensors over it, of which nobody else knows.
        others: of which none is an input.
    """
    with contextlib.suppress(Exception):
        each = {id(tensor): tensor for tensor in inputs.values()}  # two may be one
        objects = {key: _anew(tensor) for key, tensor in each.items()}

        def met() -> dict[str, Tensor]:
            return _copies(call({name: objects[id(one)] for name, one in inputs.items()}))

        met()
        numbers: list[dict[str, Tensor]] = []
        found: list[dict[str, Tensor]] = []
        for at in (0.5, 0.25, 0.75):
            new = {key: _other(tensor, at) for key, tensor in objects.items()}
            for key, tensor in each.items():
                if numbers:
                    _give_back(objects, key, tensor, new[key])
                else:
                    objects[key].detach().copy_(new[key])
            numbers += [{name: new[id(one)] for name, one in inputs.items()}]
            found += [met()]
        for own, given in zip(numbers, found, strict=True):
            for name, one in own.items():
                others[name].detach().copy_(one)
            yield call(others), given


def _give_back(objects: dict[int, Tensor], key: int, memory: Tensor, numbers: Tensor) -> None:
    """Another tensor over the memory, with numbers of its own, in the place of one that is gone
    then. One that somebody holds stays, and changes in place; where somebody holds its storage
    alone the other one is elsewhere."""
    gone, storage = weakref.ref(objects[key]), objects[key].untyped_storage()
    own = storage.data_ptr() and storage._cdata != memory.untyped_storage()._cdata
    kept = StorageWeakRef(storage) if own else None
    del storage, objects[key]
    if gone() is not None or (kept is not None and not kept.expired()):
        gc.collect()  # a cycle of its own may have held it
    if (held := gone()) is not None:
        held.detach().copy_(numbers)
        objects[key] = held
    elif kept is not None and not kept.expired():
        elsewhere = torch.empty_strided(memory.shape, memory.stride(), dtype=memory.dtype)
        elsewhere.data.copy_(numbers)  # of the version of a new one
        objects[key] = elsewhere.requires_grad_(memory.requires_grad)
    else:
        memory.detach().copy_(numbers)
        objects[key] = _anew(memory)  # at once: it gets the `id`


def _other(tensor: Tensor, at: float) -> Tensor:
    """Other numbers of their kind, in memory of their own; integers between the least and the
    largest of them."""
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
