"""Whether a rank that has a part of a tensor keeps the whole one in memory.

A storage may be shared: the flat buffer of a rank's parameters, as ZeRO and FSDP have it, holds
what is theirs, padding, and perhaps their gradients. What tells the whole one are numbers that this
rank is not to have, and other ranks are, in a storage of what it is to have: as the whole one has
them around the part, or in whatever order where nothing lies that has a name. Before there are any:
whole tensors would fill the storage to the byte, on every rank; the parts lie in different places
of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

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
from tpcheck.ranks.parts import Own, Part
from tpcheck.tensors.among import Numbers, are_among
from tpcheck.tensors.forms import FLOATS
from tpcheck.tensors.live import local
from tpcheck.tensors.mapped import is_mapped
from tpcheck.tensors.places import places

#: Bytes of a storage that is looked into, at most: a byte of memory is needed for each.
MOST = 2**28


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
        if here.numel() < full.numel() and has_storage(here):
            entry, rank = self.report.entries[name], self.report.rank
            at = places(entry, full.shape, case=self.case, rank=rank)
            self._parts[name] = Part(here, full, at)

    def keeping(
        self, module: nn.Module, known: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Parameters whose whole tensor is kept, with the bytes of the storage and of the part, and
        in whose storage, where that is another's.

        Args:
            known: tensors of the module that the reference has, too.
        """
        if not self._parts:
            return
        due = {name: local(tensor) for name, tensor in known.items()}
        found, room = kept_whole(self._parts, due, in_memory(module))
        for name, at in found.items():
            here = self._parts[name].here
            there = (other for other, tensor in due.items() if at.has(tensor))
            inside = None if at.has(here) else next(there)
            yield name, {"storage": at.bytes, "expected": here.nbytes, "inside": inside}
        for name in room:
            here = self._parts[name].here
            self.report.room[name] = kept_bytes(here), here.nbytes


def kept_whole(
    parts: Mapping[str, Part], due: Mapping[str, Tensor], others: Sequence[Tensor]
) -> tuple[dict[str, _Storage], set[str]]:
    """Of parts the storage in which the numbers of the other ranks' are. And those of which nothing
    says what is in their own, where the whole tensors of all parts in it would fill it, beside what
    else the rank has.

    Args:
        due: what the rank is to have, its parts among it. No such number tells of another rank's.
        others: all that it registers, and what its parameters have. What overlaps a part is not
            another.
    """
    storages = _storages([*parts.values()], [*due.values()], others)
    if not storages:
        return {}, set()
    own, room = Own(due.values()), set()
    found = _found_in(parts, [*storages.values()], own)
    for name, part in parts.items():
        mine = storages.get(_key(part.here)) if part.is_view else None
        if mine is not None and mine.surrounds(part, own):
            found[name] = mine
        elif name not in found and mine is not None and mine.is_filled:
            room.add(name)
    return found, room


def _found_in(
    parts: Mapping[str, Part], storages: Sequence[_Storage], own: Own
) -> dict[str, _Storage]:
    """The first storage in which the numbers are that a part lacks, in whatever order and dtype.
    One number of each part is looked for first, all at once."""
    found: dict[str, _Storage] = {}
    for dtype in FLOATS:  # whole tensors may be in another than the part
        told = [s for s in storages if len(s.numbers(dtype)) and not s.numbers(dtype).are_most]
        some = {name: part.some(dtype) for name, part in parts.items()} if told else {}
        names = [name for name, numbers in some.items() if numbers.numel()]
        if not names:
            continue
        firsts = torch.stack([some[name][0] for name in names])
        mine = own.of(dtype).have(firsts)
        for storage in told:
            likely = (mine | storage.numbers(dtype).have(firsts)).tolist()
            for name in (name for name, is_in in zip(names, likely, strict=True) if is_in):
                if name not in found and storage.keeps(parts[name], own, dtype):
                    found[name] = storage
    return found


def _key(tensor: Tensor) -> tuple[int, int]:
    """By which storages are told apart: two may begin at one address."""
    return storage_of(tensor), kept_bytes(tensor)


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
    _numbers: dict[torch.dtype, Numbers] = field(default_factory=dict)

    def numbers(self, dtype: torch.dtype) -> Numbers:
        """What lies in it where nothing is that the rank has."""
        if dtype not in self._numbers:
            self._numbers[dtype] = Numbers(numbers_in(self.tensor, self._free, dtype))
        return self._numbers[dtype]

    @cached_property
    def _free(self) -> Tensor:
        return _without(self.tensor, [*(part.here for part in self.parts), *self.beside])

    @property
    def bytes(self) -> int:
        return kept_bytes(self.tensor)

    @cached_property
    def _is_mapped(self) -> bool:
        return is_mapped(self.tensor)

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in it."""
        return has_storage(tensor) and _key(tensor) == _key(self.tensor)

    def keeps(self, part: Part, own: Own, dtype: torch.dtype) -> bool:
        """Whether the numbers that a part lacks are in it."""
        numbers = self.numbers(dtype)
        if not part.may_be_among(numbers, own):
            return False
        return are_among(part.lacking(own, dtype), numbers) and not self._is_mapped

    def surrounds(self, part: Part, own: Own) -> bool:
        """Whether the whole tensor of a part in it lies around that."""
        at = _laid(part)
        whole = at is not None and part.is_of(at.of(part.here)) and part.tells(own)
        return whole and not self._is_mapped

    @cached_property
    def is_filled(self) -> bool:
        """Whether the whole tensors of its parts fill it, beside what else the rank has, none of
        them on another."""
        free = _without(self.tensor, self.beside)
        laid = {(_laid(part), part.here.element_size()) for part in self.parts}  # tied ones once
        for at, size in laid:
            if at is None or not bool((region := at.bytes_of(free, size)).all()):
                return False
            region.fill_(False)
        return not bool(free.any()) and not self._is_mapped


def _without(storage: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """bool: the bytes of a storage that no tensor takes."""
    free = torch.ones(kept_bytes(storage), dtype=torch.bool)
    for tensor in tensors:
        bytes_of(tensor, free).fill_(False)
    return free


def _storages(
    parts: Sequence[Part], due: Sequence[Tensor], others: Sequence[Tensor]
) -> dict[tuple[int, int], _Storage]:
    """Those of what the rank is to have that this does not fill. A buffer of the candidate's own is
    not looked into: a table of levels has the numbers of all that lies on them."""
    held: dict[tuple[int, int], list[Tensor]] = {}
    mine = [*(part.here for part in parts), *due]
    known = {id(tensor) for tensor in mine}
    for tensor in [*mine, *(one for one in others if id(one) not in known)]:
        if has_storage(tensor) and kept_bytes(tensor):
            held.setdefault(_key(tensor), []).append(tensor)
    views: dict[tuple[int, int], list[Part]] = {}
    for part in parts:
        if part.is_view:
            views.setdefault(_key(part.here), []).append(part)
    found = {}
    for key, there in held.items():
        own = [t for t in there if id(t) in known]
        if not own or key[1] > MOST or any(t.nbytes == key[1] for t in own):
            continue
        inside = views.get(key, [])
        marks = ~_without(there[0], [part.here for part in inside])
        beside = [t for t in there if not bool(bytes_of(t, marks).any())]
        found[key] = _Storage(there[0], inside, beside)
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
