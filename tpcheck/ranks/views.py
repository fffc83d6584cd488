"""Whether a tensor that is a view keeps in memory the whole one of which it is a part.

A storage may be shared: the flat buffer of a rank's parameters, as ZeRO and FSDP have it, holds
what is theirs, padding, and perhaps their gradients. What tells the whole one are the numbers of
the other parts, where a whole one that the part is cut from has them, or elsewhere in the storage;
or, before there are any, room for all whole ones of which the storage has parts, and for nothing
else. One rank's buffer may be such by chance; those of all ranks, whose parts lie in different
places of the whole one, hardly are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.placement import Entry, Sharded, by_axis
from tpcheck.protocol.messages import RankReport
from tpcheck.tensors.among import are_among
from tpcheck.tensors.live import local
from tpcheck.tensors.mapped import is_mapped
from tpcheck.tensors.names import tensors_of

#: Elements of the units by which tensors in a buffer are aligned, at most: Megatron-core's are 64,
#: and 128 at a bucket's end. Larger would take unused parts of other tensors for padding; smaller
#: would not see whole tensors in such a buffer.
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
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
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
    """What it registers, parameters and buffers, and what its parameters have, as their gradients:
    what is only in an attribute may be the whole tensor, or its other parts."""
    found = [*tensors_of(module).values()]
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


class Views:
    """The parts of a rank that are views, and what they keep.

    Args:
        report: its room is filled: of parameters where nothing says what is around the part.
    """

    def __init__(self, case: Case, report: RankReport) -> None:
        self.case, self.report = case, report
        self._parts: dict[str, Part] = {}
        report.room = {}

    def note(self, name: str, full: Tensor, tensor: Tensor) -> None:
        """A rank's part of a parameter, whose placement the report has."""
        here = local(tensor)
        if here.numel() in (0, full.numel()):
            self.report.room[name] = (0, 0)
        elif has_storage(here) and not is_mapped(here) and _kept(here) > here.nbytes:
            entry, rank = self.report.entries[name], self.report.rank
            at = places(entry, full.shape, case=self.case, rank=rank)
            self._parts[name] = Part(here, full, at)

    def keeping(self, module: nn.Module) -> Iterator[tuple[str, dict[str, int]]]:
        """Parameters whose whole tensor is kept, with the bytes of the storage and of the part."""
        if not self._parts:
            return
        for name, whole in kept_whole(self._parts, in_memory(module)).items():
            here = self._parts[name].here
            if whole is None:
                self.report.room[name] = _kept(here), here.nbytes
            elif whole:
                yield name, {"storage": _kept(here), "expected": here.nbytes}


def _kept(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


@dataclass(frozen=True)
class Part:
    """A rank's part of a tensor that is a view.

    Args:
        here: the part.
        full: the whole tensor's numbers.
        places: by dim, where the part's indices lie in the whole tensor's.
    """

    here: Tensor
    full: Tensor
    places: Sequence[Sequence[int]]


def kept_whole(parts: Mapping[str, Part], others: Sequence[Tensor]) -> dict[str, bool | None]:
    """Whether each part keeps the whole tensor alive: the numbers of the other ranks' are around
    it, or elsewhere in its storage. None where nothing says what is there, and the whole tensors of
    all parts in the storage would fill it, beside what else the rank has and padding.

    Args:
        others: all that the rank has. What overlaps a part is not another.
    """
    found: dict[str, bool | None] = {}
    for storage in dict.fromkeys(storage_of(part.here) for part in parts.values()):
        own = {n: part for n, part in parts.items() if storage_of(part.here) == storage}
        there = [o for o in others if o.numel() and has_storage(o) and storage_of(o) == storage]
        there = _beside([part.here for part in own.values()], there)
        laid = {name: _laid(part) for name, part in own.items()}
        room: bool | None = None if _fills(own, laid, there) else False
        for name, part in own.items():
            at = laid[name]
            around = at is not None and _is(at.of(part.here), part.full)
            found[name] = True if around or _has_others(part, own.values(), there) else room
    return found


def _beside(own: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """Those of the others that overlap none of a rank's parts in their storage."""
    sizes = {tensor.element_size() for tensor in own}
    size = sizes.pop() if len(sizes) == 1 else 1
    marks = torch.zeros(_kept(own[0]) // size, dtype=torch.bool)
    for tensor in own:
        _lies(tensor, marks, size).fill_(True)
    return [other for other in others if not bool(_lies(other, marks, size).any())]


def _has_others(part: Part, parts: Iterable[Part], others: Iterable[Tensor]) -> bool:
    """Whether the other ranks' numbers of a tensor are in the storage of its part, in whatever
    order, where nothing that the rank has lies."""
    here = part.here.detach().as_subclass(Tensor)
    if not here.is_floating_point():
        return False
    free = torch.ones(_count(here), dtype=torch.bool)
    for tensor in [*(each.here for each in parts), *others]:
        _lies(tensor, free, here.element_size()).fill_(False)
    missing = torch.ones(part.full.shape, dtype=torch.bool)
    missing[torch.meshgrid(*map(torch.tensor, part.places), indexing="ij")] = False
    return are_among(part.full[missing].to(here.dtype), here.as_strided(free.shape, (1,), 0)[free])


def _is(whole: Tensor, full: Tensor) -> bool:
    """Whether it has the numbers of a tensor, which no other has by chance."""
    same = torch.equal(whole.to(full), full.to(whole.dtype).to(full))
    return same and bool((full != full.flatten()[0]).any())


@dataclass(frozen=True)
class _Laid:
    """Where a tensor would lie in a storage: from which element on, with which strides."""

    begin: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, tensor: Tensor) -> Tensor:
        """It, in the storage of another tensor."""
        plain = tensor.detach().as_subclass(Tensor)
        return plain.as_strided(self.shape, self.strides, self.begin)


def _laid(part: Part) -> _Laid | None:
    """The whole tensor around its part; None where it would not lie in the storage, or some of its
    elements on others."""
    strides, begin = [], int(part.here.storage_offset())
    for at, stride in zip(part.places, part.here.stride(), strict=True):
        step = at[1] - at[0] if len(at) > 1 else 1
        regular = step > 0 and list(at) == list(range(at[0], at[0] + step * len(at), step))
        if not regular or stride % step:
            return None
        strides.append(int(stride) // step)
        begin -= at[0] * strides[-1]
    reach = 1
    for stride, n in sorted(zip(strides, part.full.shape, strict=True)):
        if n > 1:
            if stride < reach:
                return None
            reach += (n - 1) * stride
    inside = begin >= 0 and begin + reach <= _count(part.here)
    return _Laid(begin, tuple(part.full.shape), tuple(strides)) if inside else None


def _count(tensor: Tensor) -> int:
    """Elements of its storage."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _fills(
    parts: Mapping[str, Part], laid: Mapping[str, _Laid | None], others: Sequence[Tensor]
) -> bool:
    """Whether the whole tensors of parts of one storage, and what else is there, fill it but for
    padding, none of them on another."""
    here = [part.here for part in parts.values()]
    if len({tensor.element_size() for tensor in here}) > 1:
        return False
    taken = torch.zeros(_count(here[0]), dtype=torch.bool)
    for other in others:
        _lies(other, taken, here[0].element_size()).fill_(True)
    for at in set(laid.values()):  # tied ones once
        if at is None or bool((region := at.of(taken)).any()):
            return False
        region.fill_(True)
    return _is_padding(~taken)


def _lies(tensor: Tensor, marks: Tensor, size: int) -> Tensor:
    """The marks of where it lies in its storage, of elements of so many bytes."""
    begin, each = int(tensor.storage_offset()), tensor.element_size()
    if each == size:
        once = [n if by else min(n, 1) for n, by in zip(tensor.shape, tensor.stride(), strict=True)]
        return marks.as_strided(once, tensor.stride(), begin)
    reach = 1 + sum((n - 1) * by for n, by in zip(tensor.shape, tensor.stride(), strict=True))
    return marks[begin * each // size : -(-(begin + int(reach)) * each // size)]


def _is_padding(free: Tensor) -> bool:
    """Whether all that is free of a storage is what a unit, a power of two, leaves behind a tensor
    before it begins anew."""
    edges = torch.diff(free.int(), prepend=torch.zeros(1).int(), append=torch.zeros(1).int())
    begins, ends = (edges == 1).nonzero().flatten(), (edges == -1).nonzero().flatten()
    runs = ends - begins
    units = 2 ** torch.floor(torch.log2(runs.double()) + 1)
    return bool(((units <= UNIT) & (ends % units == 0)).all())
