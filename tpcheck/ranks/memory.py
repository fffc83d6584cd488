"""The memory of a rank's tensors: which storage each has, and what the rank keeps in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tpcheck.tensors.forms import is_freed
from tpcheck.tensors.forms import plain as numbers_of
from tpcheck.tensors.live import local
from tpcheck.tensors.names import tensors_of

#: Containers in each other that are looked into, and entries of each.
NESTED, MANY = 4, 10_000

_REGISTERED = ("_parameters", "_buffers", "_modules")


def storage_of(tensor: Tensor) -> int:
    """By which tensors of one storage are known."""
    return tensor.untyped_storage().data_ptr()


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that have a storage of their own to look at, of DTensors this rank's part."""
    own = {name: local(tensor) for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in own.items() if has_storage(tensor)}


def has_storage(tensor: Tensor) -> bool:
    """Whether there is memory to look at: not of one that wraps others, sparse, on meta, or without
    a shape so far."""
    try:
        with torch._C.DisableTorchFunctionSubclass():  # whatever a class says of itself
            if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
                return False
            if is_lazy(tensor) or is_freed(tensor):
                return False
            there = storage_of(tensor) != 0  # raises where a class has none
            return there or type(tensor) in (Tensor, nn.Parameter)
    except Exception:  # torch's own error differs by kind of wrapper
        return False


def attributes(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that its modules and parameters keep in attributes, alone or in lists, tuples,
    deques and dicts, with those of modules that are in these; not what they register. Of DTensors
    this rank's part."""
    for prefix, owner in [*module.named_modules(), *module.named_parameters()]:
        for name, value in list(vars(owner).items()):
            where = f"{prefix}.{name}" if prefix else name
            if name.startswith("_") and isinstance(value, dict) and name in _REGISTERED:
                continue
            for tensor in _within(value, NESTED):
                each = numbers_of(local(tensor))
                if has_storage(each):
                    yield where, each.detach()


def _within(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from tensors_of(value).values()
    elif depth and isinstance(value, (dict, list, tuple, deque)):
        inside = dict.values(value) if isinstance(value, dict) else value
        for each in list(islice(inside, MANY)):
            yield from _within(each, depth - 1)


def in_memory(module: nn.Module) -> list[Tensor]:
    """What it registers, parameters and buffers, and what its parameters have, as their gradients:
    what is only in an attribute may be the whole tensor, or its other parts."""
    found = [*tensors_of(module).values()]
    for parameter in module.parameters():
        each = [*vars(parameter).values(), parameter.grad]
        found += [one for one in each if isinstance(one, Tensor)]
    return [tensor for tensor in map(local, found) if has_storage(tensor)]


def kept_bytes(tensor: Tensor) -> int:
    """Of its storage."""
    return tensor.untyped_storage().nbytes()


def all_bytes(tensor: Tensor) -> Tensor:
    """Of its storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)


def bytes_of(tensor: Tensor, marks: Tensor) -> Tensor:
    """Of the marks of all bytes of its storage those of a tensor; of what it repeats, once."""
    size, strides = tensor.element_size(), tensor.stride()
    once = [n if by else min(n, 1) for n, by in zip(tensor.shape, strides, strict=True)]
    begin = int(tensor.storage_offset()) * size
    return marks.as_strided([*once, size], [*(by * size for by in strides), 1], begin)


def numbers_in(storage: Tensor, free: Tensor, dtype: torch.dtype) -> Tensor:
    """What free bytes of a storage are as numbers, where all bytes of one are free.

    Args:
        storage: a tensor in it.
        free: bool, of each byte.
    """
    size = dtype.itemsize
    count = free.numel() // size
    return (
        all_bytes(storage)[: count * size]
        .cpu()
        .view(dtype)[free[: count * size].view(-1, size).all(1)]
    )
