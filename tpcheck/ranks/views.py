"""What a tensor that is a view keeps in memory besides itself.

A storage may be shared: the flat buffer of all of a rank's parameters, as ZeRO and FSDP have it,
keeps nothing alive that is not some parameter's own. What is left around a tensor, up to the ones
before and after it, is what it alone keeps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tpcheck.tensors.live import local

#: Bytes around a tensor that an allocator's alignment may take where several share a storage:
#: Megatron-core's buffers begin each parameter at a multiple of 64 elements, and end at one of 128.
ALIGNMENT = 128 * 8


def storage_of(tensor: Tensor) -> int:
    """By which tensors of one storage are known."""
    return tensor.untyped_storage().data_ptr()


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that have a storage of their own to look at, of DTensors this rank's part."""
    own = {name: local(tensor) for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in own.items() if has_storage(tensor)}


def has_storage(tensor: Tensor) -> bool:
    strided = tensor.layout is torch.strided and not tensor.is_meta
    return strided and type(tensor) in (Tensor, nn.Parameter)


def kept_by(tensor: Tensor, own: Mapping[str, Tensor]) -> int:
    """Bytes that a tensor alone keeps alive: its own, and those of its storage around it and
    between its elements that are no other tensor's, but for alignment.

    Args:
        own: the rank's tensors, this one perhaps among them.
    """
    first, whole = storage_of(tensor), tensor.untyped_storage().nbytes()
    if whole <= tensor.nbytes:
        return whole
    begin, end = _span(tensor)
    low, high, inside, shared = first, first + whole, 0, False
    for one in {_span(o): o for o in plain(own).values() if storage_of(o) == first}.values():
        start, stop = _span(one)
        if (start, stop) == (begin, end):
            continue  # itself, or tied to it
        shared = True
        if stop <= begin:
            low = max(low, stop)
        elif start >= end:
            high = min(high, start)
        else:
            inside += one.nbytes
    kept = high - low - inside
    return tensor.nbytes if shared and kept - tensor.nbytes <= ALIGNMENT else kept


def _span(tensor: Tensor) -> tuple[int, int]:
    """Where its first byte is, and where its last one ends."""
    if not tensor.numel():
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((n - 1) * by for n, by in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
