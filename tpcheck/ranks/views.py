"""Whether a tensor that is a view keeps in memory the whole one of which it is a part.

A storage may be shared: the flat buffer of a rank's parameters, as ZeRO and FSDP have it, holds
what is theirs, padding, and perhaps their gradients. What tells the whole one is where the part
lies: around it there is room for the others, as they lie in a whole one that it is cut from, and
nothing else of the rank's is there. One rank's buffer may have such room by chance; those of all
ranks, whose parts lie in different places of the whole one, hardly do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.placement import Entry, Sharded, by_axis
from tpcheck.tensors.live import local
from tpcheck.tensors.names import tensors_of

#: Elements of the largest unit that an allocator rounds a buffer up to: Megatron-core pads buckets
#: to so many, for the bandwidth of NCCL. Smaller would call its buffers whole tensors; larger would
#: miss more of those of which one rank has the first part.
LARGEST_UNIT = 1 << 16
#: Of the units by which the tensors in a buffer are aligned: Megatron-core's are 64 elements, and
#: 128 at a bucket's end. What is before and behind small tensors there is padding; larger would
#: take the other parts of larger ones for it.
UNIT = 128

_REGISTERED = ("_parameters", "_buffers", "_modules")


def storage_of(tensor: Tensor) -> int:
    """By which tensors of one storage are known."""
    return tensor.untyped_storage().data_ptr()


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that have a storage of their own to look at, of DTensors this rank's part."""
    own = {name: local(tensor) for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in own.items() if has_storage(tensor)}


def has_storage(tensor: Tensor) -> bool:
    """Whether there is memory to look at: not of one that wraps others, sparse, or on meta."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return False
    if type(tensor) in (Tensor, nn.Parameter):
        return True
    try:
        return storage_of(tensor) != 0
    except Exception:  # torch's own error differs by kind of wrapper
        return False


def attributes(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that its modules keep in attributes, alone or in a list, tuple or dict; not what they
    register."""
    for prefix, owner in module.named_modules():
        for name, value in list(vars(owner).items()):
            where = f"{prefix}.{name}" if prefix else name
            if name.startswith("_") and isinstance(value, dict) and name in _REGISTERED:
                continue
            inside = value.values() if isinstance(value, dict) else value
            several = list(inside) if isinstance(value, (dict, list, tuple)) else [value]
            for each in several:
                if isinstance(each, Tensor) and has_storage(each):
                    yield where, each.detach()


def in_memory(module: nn.Module) -> list[Tensor]:
    """All that it keeps: parameters and buffers, attributes, and those of its parameters, as their
    gradients are."""
    found = [*tensors_of(module).values(), *(tensor for _, tensor in attributes(module))]
    for parameter in module.parameters():
        each = [*vars(parameter).values(), parameter.grad]
        found += [one for one in each if isinstance(one, Tensor)]
    return [tensor for tensor in map(local, found) if has_storage(tensor)]


def places(entry: Entry, shape: Sequence[int], *, case: Case, rank: int) -> list[Sequence[int]]:
    """Where rank `rank`'s part of a tensor of this shape lies: by dim, its indices."""
    coordinates = case.coordinates(rank)
    every: list[Sequence[int]] = [range(size) for size in shape]
    for axis, own in by_axis(entry).items():
        if isinstance(own, Sharded):
            at, degree = every[own.dim], case.mesh.get(axis, 1)
            indices = own.indices(len(at), degree, coordinates.get(axis, 0))
            every[own.dim] = [at[i] for i in indices]
    return every


def is_around(
    part: Tensor, full: Tensor, places: Sequence[Sequence[int]], others: Iterable[Tensor]
) -> bool | None:
    """Whether a part keeps the whole tensor alive; None where there is room for it around the
    part, and nothing says what it is.

    Args:
        full: the whole tensor's numbers.
        places: by dim, where the part's indices lie in the whole tensor's.
        others: what the rank has. What overlaps the part itself is no other.
    """
    size, most = part.element_size(), full.numel()
    count, (first, last) = part.untyped_storage().nbytes() // size, _span(part, size)
    laid = _laid(part, places, full.shape, count)
    begin, end = (first, last) if laid is None else (laid.begin, laid.end)
    # as far as the whole one may reach, and padding beyond
    low = max(0, min(begin, first - most) - UNIT)
    high = min(count, max(end, last + most) + UNIT)
    taken = _taken(part, low, high, others)
    around = _Free.around(taken, low, first, last)
    if around.last - around.first == most and not around.is_padding(first, last, LARGEST_UNIT):
        return True if count == most else None
    if laid is None:
        return False
    if part.is_contiguous():
        around.pad(taken, low, first, last)
    if bool(taken.as_strided(full.shape, laid.strides, begin - low).any()):
        return False
    whole = part.detach().as_subclass(Tensor).as_strided(full.shape, laid.strides, begin)
    same = torch.equal(whole.to(full), full.to(whole.dtype).to(full))
    return True if same and bool((full != full.flatten()[0]).any()) else None


@dataclass(frozen=True)
class _Laid:
    """Where a tensor would lie in a storage: from which element until which, with which strides."""

    begin: int
    end: int
    strides: tuple[int, ...]


def _laid(
    part: Tensor, places: Sequence[Sequence[int]], shape: Sequence[int], count: int
) -> _Laid | None:
    """The whole tensor of this shape, around its part; None where it would not lie in a storage of
    so many elements, or some of its elements on others."""
    strides, begin = [], int(part.storage_offset())
    for at, stride in zip(places, part.stride(), strict=True):
        step = at[1] - at[0] if len(at) > 1 else 1
        regular = step > 0 and list(at) == list(range(at[0], at[0] + step * len(at), step))
        if not regular or stride % step:
            return None
        strides.append(int(stride) // step)
        begin -= at[0] * strides[-1]
    reach = 1
    for stride, n in sorted(zip(strides, shape, strict=True)):
        if n > 1:
            if stride < reach:
                return None
            reach += (n - 1) * stride
    inside = begin >= 0 and begin + reach <= count
    return _Laid(begin, begin + reach, tuple(strides)) if inside else None


def _taken(part: Tensor, low: int, high: int, others: Iterable[Tensor]) -> Tensor:
    """Which elements of a part's storage are others', from `low` until `high`."""
    size, taken = part.element_size(), torch.zeros(high - low, dtype=torch.bool)
    own = _marked(part, low, high, size)
    for other in others:
        if not other.numel() or not has_storage(other) or storage_of(other) != storage_of(part):
            continue
        first, last = _span(other, size)
        if first < high and last > low:
            marked = _marked(other, low, high, size)
            if not bool((marked & own).any()):
                taken |= marked
    return taken


def _span(tensor: Tensor, size: int) -> tuple[int, int]:
    """From which element of its storage until which it reaches, of elements of so many bytes."""
    begin, each = int(tensor.storage_offset()), tensor.element_size()
    reach = 1 + sum((n - 1) * by for n, by in zip(tensor.shape, tensor.stride(), strict=True))
    return begin * each // size, -(-(begin + int(reach)) * each // size)


def _marked(tensor: Tensor, low: int, high: int, size: int) -> Tensor:
    """Where it lies between two elements of its storage, of so many bytes each."""
    first, last = _span(tensor, size)
    own = torch.zeros(last - first, dtype=torch.bool)
    if tensor.element_size() == size:
        own.as_strided(tensor.shape, tensor.stride(), 0).fill_(True)
    else:
        own.fill_(True)
    marked = torch.zeros(high - low, dtype=torch.bool)
    begin, end = max(first, low), min(last, high)
    marked[begin - low : end - low] = own[begin - first : end - first]
    return marked


@dataclass(frozen=True)
class _Free:
    """The elements around a part that are no other tensor's, from the first until the last."""

    first: int
    last: int

    @classmethod
    def around(cls, taken: Tensor, low: int, first: int, last: int) -> _Free:
        """Of a part that reaches from `first` until `last`, in what begins at `low`; none where
        others lie between its elements."""
        if bool(taken[first - low : last - low].any()):
            return cls(first, first)
        before, behind = taken[: first - low].nonzero(), taken[last - low :].nonzero()
        begin = low + int(before[-1]) + 1 if len(before) else low
        return cls(begin, last + int(behind[0]) if len(behind) else low + len(taken))

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        """Before the part and behind it, where there are any."""
        return [(a, b) for a, b in ((self.first, first), (last, self.last)) if a < b]

    def is_padding(self, first: int, last: int, most: int) -> bool:
        """Whether all of it is."""
        return all(_is_padding(b - a, b, most) for a, b in self.gaps(first, last))

    def pad(self, taken: Tensor, low: int, first: int, last: int) -> None:
        """Takes what a unit of alignment leaves."""
        for begin, end in self.gaps(first, last):
            if _is_padding(end - begin, end, UNIT):
                taken[begin - low : end - low] = True


def _is_padding(count: int, until: int, most: int) -> bool:
    """Whether so many elements are what a unit, a power of two, leaves before it begins anew."""
    unit = 1 << count.bit_length()
    return unit <= most and until % unit == 0
