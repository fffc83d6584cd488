"""The tensors that a launch is given: by themselves, in tuples, behind descriptors, and as
addresses in integers, the way of grouped products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tpcheck.process import garbage

#: Numbers of an integer tensor that are taken for addresses, at most. Tables of pointers are
#: small; with more, each launch that is given token ids would be slower.
TABLE = 4096
#: Below this no memory is.
LOWEST = 2**16
#: Bytes from an address within which an access may be to the tensor that begins there. Counts and
#: seeds are as large as addresses may be, and far from where tensors are.
NEAR = 2**30


def tensors(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    """Each with its argument's name: `xs[1]` of a tuple, and the one that a descriptor is of."""
    for name, value in arguments:
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (tuple, list)):
            yield from tensors((f"{name}[{i}]", one) for i, one in enumerate(value))
        elif isinstance(getattr(value, "base", None), Tensor) and hasattr(value, "block_shape"):
            yield name, value.base


def addresses(arguments: Sequence[tuple[str, Any]]) -> list[int]:
    """What may be addresses of tensors among the integers."""
    found = [value for _, value in arguments if type(value) is int]
    for _, tensor in tensors(arguments):
        if tensor.dtype in (torch.int64, torch.uint64) and 0 < tensor.numel() <= TABLE:
            found += tensor.flatten().tolist()
    return sorted({address for address in found if address >= LOWEST})


def living(known: Sequence[int]) -> list[Tensor]:
    """Tensors of the process that begin at, or reach over, one of the addresses: those that the
    function under test has made for itself, and given by address."""
    found: dict[int, Tensor] = {}
    for tensor in garbage.tensors():
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
            continue
        first = tensor.untyped_storage().data_ptr()
        if first not in found and any(_has(tensor, one) for one in known):
            found[first] = tensor
    return [*found.values()]


def _has(tensor: Tensor, address: int) -> bool:
    """Whether its storage has the byte at an address."""
    storage = tensor.untyped_storage()
    return 0 <= address - storage.data_ptr() < storage.nbytes()
