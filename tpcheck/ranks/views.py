"""Whether a rank that has a part of a tensor keeps the whole one in memory.

A storage may be shared: the flat buffer of a rank's parameters, as ZeRO and FSDP have it, holds
what is theirs, padding, and perhaps their gradients. What tells the whole one are the numbers of
the other ranks' parts, in a storage that the module's tensors lie in, where none of these does: as
a whole one has them around the part, or in whatever order. Before there are any: whole tensors
would fill the storage to the byte, on every rank; the parts lie in different places of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.protocol.messages import RankReport
from tpcheck.ranks.memory import (
    bytes_of,
    has_storage,
    in_memory,
    kept_bytes,
    numbers_in,
    storage_of,
)
from tpcheck.ranks.parts import Part, places
from tpcheck.tensors.live import local
from tpcheck.tensors.mapped import is_mapped

#: In which whole tensors are looked for, beside the part's own.
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Views:
    """The parts of a rank, and what is kept of the whole tensors.

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
        if here.numel() < full.numel() and has_storage(here) and not is_mapped(here):
            entry, ranks = self.report.entries[name], range(self.case.world_size)
            each = [places(entry, full.shape, case=self.case, rank=rank) for rank in ranks]
            self._parts[name] = Part(here, full, each, self.report.rank)

    def keeping(self, module: nn.Module) -> Iterator[tuple[str, dict[str, int]]]:
        """Parameters whose whole tensor is kept, with the bytes of the storage and of the part."""
        if not self._parts:
            return
        for name, found in kept_whole(self._parts, in_memory(module)).items():
            here = self._parts[name].here
            if found is None:
                self.report.room[name] = kept_bytes(here), here.nbytes
            elif found:
                yield name, {"storage": found, "expected": here.nbytes}


def kept_whole(parts: Mapping[str, Part], others: Sequence[Tensor]) -> dict[str, int | None]:
    """Of each part the bytes of the storage in which the numbers of the other ranks' are; 0 where
    there is none. None where nothing says what is in its own, and the whole tensors of all parts in
    it would fill it, beside what else the rank has.

    Args:
        others: all that the rank has. What overlaps a part is not another.
    """
    storages = _storages([*parts.values()], others)
    found: dict[str, int | None] = {}
    for name, part in parts.items():
        own = storages.get(storage_of(part.here)) if part.is_view else None
        every = [each for each in storages.values() if each.keeps(part)]
        at = own if own is not None and own.surrounds(part) else next(iter(every), None)
        if at is not None:
            found[name] = kept_bytes(at.tensor)
        else:
            found[name] = None if own is not None and own.is_filled else 0
    return found


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

    def bytes_of(self, marks: Tensor, size: int) -> Tensor:
        """Of the marks of all bytes those of it, whose elements have so many."""
        strides = [*(by * size for by in self.strides), 1]
        return marks.as_strided([*self.shape, size], strides, self.begin * size)


@dataclass(frozen=True)
class _Storage:
    """One in which something of the rank's lies, and something else may.

    Args:
        tensor: any in it.
        parts: those that are views of it.
        beside: what else the rank has in it, which overlaps no part.
    """

    tensor: Tensor
    parts: Sequence[Part]
    beside: Sequence[Tensor]

    @cached_property
    def free(self) -> Tensor:
        """bool: which bytes nothing of the rank's takes."""
        marks = torch.ones(kept_bytes(self.tensor), dtype=torch.bool)
        for tensor in [*(part.here for part in self.parts), *self.beside]:
            bytes_of(tensor, marks).fill_(False)
        return marks

    def keeps(self, part: Part) -> bool:
        """Whether the numbers that a part lacks are in it."""
        return any(
            part.is_among(numbers_in(self.tensor, self.free, dtype))
            for dtype in dict.fromkeys((part.here.dtype, *_DTYPES))
        )

    def surrounds(self, part: Part) -> bool:
        """Whether the whole tensor of a part in it lies around that."""
        at = _laid(part)
        return at is not None and part.tells and part.is_of(at.of(part.here))

    @cached_property
    def is_filled(self) -> bool:
        """Whether the whole tensors of its parts fill it, beside what else the rank has, none of
        them on another."""
        free = torch.ones(kept_bytes(self.tensor), dtype=torch.bool)
        for other in self.beside:
            bytes_of(other, free).fill_(False)
        laid = {(_laid(part), part.here.element_size()) for part in self.parts}  # tied ones once
        for at, size in laid:
            if at is None or not bool((region := at.bytes_of(free, size)).all()):
                return False
            region.fill_(False)
        return not bool(free.any())


def _storages(parts: Sequence[Part], others: Sequence[Tensor]) -> dict[int, _Storage]:
    """By what they are known by, those that no tensor of the rank's fills."""
    own, found = [part.here for part in parts], {}
    held = [t for t in [*own, *others] if has_storage(t) and not is_mapped(t)]
    for storage, tensor in {storage_of(t): t for t in held}.items():
        there = [t for t in held if storage_of(t) == storage]
        inside = [part for part in parts if part.is_view and storage_of(part.here) == storage]
        if not inside and kept_bytes(tensor) == max(t.nbytes for t in there):
            continue
        marks = torch.zeros(kept_bytes(tensor), dtype=torch.bool)
        for part in inside:
            bytes_of(part.here, marks).fill_(True)
        beside = [t for t in there if t.numel() and not bool(bytes_of(t, marks).any())]
        found[storage] = _Storage(tensor, inside, beside)
    return found


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
    count = kept_bytes(part.here) // part.here.element_size()
    inside = begin >= 0 and begin + reach <= count
    return _Laid(begin, tuple(part.full.shape), tuple(strides)) if inside else None
