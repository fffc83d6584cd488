"""The memory of a rank's tensors: which storage each has, and what the rank keeps in them."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tpcheck.tensors.forms import is_freed
from tpcheck.tensors.live import layers, local
from tpcheck.tensors.names import tensors_of

#: Containers in each other that are looked into, and entries of all of them.
NESTED, MANY = 4, 100_000
#: How what each holds is gone through, whatever a class of its own says.
_ENTRIES: dict[Any, Callable[[Any], Iterable[object]]] = {
    dict: dict.values,
    list: list.__iter__,
    tuple: tuple.__iter__,
    deque: deque.__iter__,
}
#: Most of what modules keep.
_ATOMS = frozenset({type(None), bool, int, float, str, set, type(lambda: 0)})

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
    deques and dicts, with those of modules that are in these; not what they register. Each once;
    of DTensors and other wrappers what is inside."""
    look = _Look()
    for prefix, owner in [*module.named_modules(), *module.named_parameters()]:
        for name, value in list(vars(owner).items()):
            where = f"{prefix}.{name}" if prefix else name
            if name in _REGISTERED and isinstance(value, dict):
                continue
            found: list[Tensor] = []
            with contextlib.suppress(Exception):  # of the candidate's classes: it is no crash
                found += look.inside(value)
            yield from ((where, each.detach()) for each in found)


class _Look:
    """A search through what a module keeps, each thing once: it may lead back to the module."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}  # by their identities, which are theirs while kept
        self._left = MANY

    def inside(self, value: object, depth: int = NESTED) -> list[Tensor]:
        """The tensors with memory in a value."""
        kind = type(value)
        if kind in _ATOMS:
            return []
        one = issubclass(kind, (Tensor, nn.Module))
        container = next((c for c in _ENTRIES if issubclass(kind, c)), None)
        if id(value) in self._seen or not (one or (container and depth)):
            return []
        self._seen[id(value)] = value
        if issubclass(kind, Tensor):
            return [each for each in layers(cast(Tensor, value)) if has_storage(each)]
        if issubclass(kind, nn.Module):
            own = cast(nn.Module, value)
            named = nn.Module.named_parameters(own), nn.Module.named_buffers(own)
            return [t for _, tensor in chain(*named) for t in self.inside(tensor)]
        entries = list(islice(_ENTRIES[container](value), self._left))
        self._left -= len(entries)
        return [tensor for entry in entries for tensor in self.inside(entry, depth - 1)]


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
