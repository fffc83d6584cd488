"""Placements: which part of a full tensor each rank holds.

DTensor's words (`Replicate`, `Shard`, `Partial`) and those that tensor parallelism needs beyond
them: `Heads` (attention heads, K/V replicated when there are fewer heads than ranks) and
`Blocks` (fused weights such as [q | k | v], each block split on its own).

A sharding placement is one thing only: a list of indices along one dim, per rank. Slicing, the
search for replicas, and the diagnosis of permuted shards all read that list.

Letters: R = degree of the axis, r = coordinate on it, n = size of the dim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.axes import along, covered
from tpcheck.errors import LayoutError, did_you_mean
from tpcheck.given import demand, is_whole

if TYPE_CHECKING:
    from torch import Tensor

    from tpcheck.case import Case


@dataclass(frozen=True)
class Replicate:
    """Every rank holds the full tensor."""


@dataclass(frozen=True)
class Partial:
    """Every rank holds a term of the tensor's shape; their sum is the tensor."""


@dataclass(frozen=True)
class Shard:
    """Rank r holds a contiguous piece of dim `dim`, split as `torch.chunk` splits (the last ones
    may be shorter, or empty). With `even=True` a size that R does not divide is a `LayoutError`."""

    dim: int
    even: bool = False

    def __post_init__(self) -> None:
        _check_number(self, "dim")

    def indices(self, size: int, degree: int, rank: int) -> list[int]:
        """Rank `rank`'s indices into a dim of `size`, split over `degree` ranks."""
        if self.even and size % degree:
            raise LayoutError(f"{self}: size {size} is not divisible by tp={degree}")
        step = -(-size // degree)
        return list(range(min(rank * step, size), min((rank + 1) * step, size)))


@dataclass(frozen=True)
class Heads:
    """Dim `dim` is `heads` heads of equal size; rank r holds whole heads.

    With heads ≥ R each rank holds heads/R consecutive ones. With fewer heads than ranks (K/V
    under a high degree) each is replicated on R/heads consecutive ranks: rank r holds head
    r // (R/heads).
    """

    dim: int
    heads: int

    def __post_init__(self) -> None:
        _check_number(self, "dim")
        _check_number(self, "heads")

    def indices(self, size: int, degree: int, rank: int) -> list[int]:
        """As `Shard.indices`, by heads; `LayoutError` where R and the heads don't divide."""
        if self.heads < 1 or size % self.heads:
            raise LayoutError(f"{self}: size {size} is not a multiple of heads={self.heads}")
        if self.heads % degree and degree % self.heads:
            raise LayoutError(
                f"heads={self.heads} is not divisible by tp={degree} (nor tp by heads); "
                f"choose a degree that divides the heads, or a multiple of them"
            )
        width = size // self.heads
        per_rank = max(1, self.heads // degree)
        first = rank * self.heads // degree
        return list(range(first * width, (first + per_rank) * width))


@dataclass(frozen=True)
class Blocks:
    """Dim `dim` is a concatenation of blocks, each split on its own; rank r holds
    [its part of block 0 | its part of block 1 | …], as fused QKV or gate/up weights do.

    Args:
        dim: the dim.
        parts: (size of the block, how it is split: a `Shard` or `Heads` of the same dim) pairs; or
            a number of blocks of one size, each split as `Shard` does it.
    """

    dim: int
    parts: tuple[tuple[int, Shard | Heads], ...] | int

    def __post_init__(self) -> None:
        _check_number(self, "dim")
        given = self.parts
        if isinstance(given, (tuple, list)) and all(map(_is_part, given)):
            parts = [(n, Shard(own.dim) if of_torch(own) else own) for n, own in given]
            object.__setattr__(self, "parts", tuple(parts))
        else:
            what = "(size, Shard or Heads) pairs, or a number of blocks"
            demand(self, "parts", is_whole(given, least=1), what, kind=LayoutError)

    def blocks(self, size: int) -> tuple[tuple[int, Shard | Heads], ...]:
        """The pairs for a dim of `size`; `LayoutError` where the sizes don't add up."""
        if isinstance(self.parts, int):
            if size % self.parts:
                raise LayoutError(f"{self.parts} blocks of one size don't add up to {size}")
            return ((size // self.parts, Shard(self.dim)),) * self.parts
        widths = [width for width, _ in self.parts]
        if sum(widths) != size:
            raise LayoutError(f"Blocks of sizes {widths} don't add up to {size}")
        return self.parts

    def indices(self, size: int, degree: int, rank: int) -> list[int]:
        """As `Shard.indices`, block by block; `LayoutError` where the sizes don't add up."""
        out: list[int] = []
        offset = 0
        for width, part in self.blocks(size):
            out += [offset + i for i in part.indices(width, degree, rank)]
            offset += width
        return out


@dataclass(frozen=True)
class Only:
    """Only the ranks at `coordinate` of the axis have the tensor (the parameters of a pipeline
    stage, the output of the last one); at the others it must be absent."""

    coordinate: int

    def __post_init__(self) -> None:
        _check_number(self, "coordinate")


def _check_number(placement: object, field: str) -> None:
    whole = is_whole(getattr(placement, field), least=-(2**31))
    demand(placement, field, whole, "a whole number", kind=LayoutError)


def _is_part(part: Any) -> bool:
    if not (isinstance(part, (tuple, list)) and len(part) == 2 and is_whole(part[0])):
        return False
    return isinstance(part[1], (Shard, Heads)) or of_torch(part[1]) == "Shard"


def of_torch(own: object) -> str | None:
    """What a placement of torch's DTensor is called, `_StridedShard` say; None of all else."""
    kind = type(own)
    return kind.__name__ if kind.__module__.startswith("torch.distributed.") else None


Sharded = Shard | Heads | Blocks
Placement = Replicate | Partial | Only | Sharded
# One placement means the "tp" axis; a mapping names axes, applied in its order.
Entry = Placement | Mapping[str, Placement]


def by_axis(entry: Entry) -> dict[str, Placement]:
    """An entry as axis → placement."""
    return dict(entry) if isinstance(entry, Mapping) else {"tp": entry}


def take(tensor: Tensor, entry: Entry, *, case: Case, rank: int) -> Tensor:
    """Rank `rank`'s part of the full `tensor` (of a `Partial` one: all of it, the expected sum)."""
    if isinstance(entry, Replicate):
        return tensor
    for axis, placement in by_axis(entry).items():
        if not isinstance(placement, (Replicate, Partial, Only)):
            tensor = _take_axis(tensor, placement, *along(axis, case, rank))
    return tensor


def follows(entry: Entry, shape: tuple[int, ...], of: tuple[int, ...]) -> Entry | None:
    """How a tensor of this shape is placed that is kept of another one, of shape `of`, with this
    entry: a dim of its size is split alike, and one of size 1 on no rank; a number is on every rank
    that has any of the other. None where nothing can be said."""
    if shape == of:
        return entry
    if not shape:
        own = {axis: p for axis, p in by_axis(entry).items() if isinstance(p, Only)}
        return own or Replicate()
    if len(shape) != len(of) or any(
        own not in (1, full) for own, full in zip(shape, of, strict=True)
    ):
        return None
    return {
        axis: Replicate() if isinstance(own, Sharded) and shape[own.dim] != of[own.dim] else own
        for axis, own in by_axis(entry).items()
    }


def holds(entry: Entry, *, case: Case, rank: int) -> bool:
    """Whether rank `rank` has any of the tensor at all; false only by an `Only`."""
    return all(
        case.coordinates(rank).get(axis, 0) == placement.coordinate
        for axis, placement in by_axis(entry).items()
        if isinstance(placement, Only)
    )


def summed(entry: Entry) -> dict[str, Placement]:
    """An entry as axis → placement, once its terms are summed: `Partial` becomes `Replicate`."""
    return {
        axis: Replicate() if isinstance(own, Partial) else own
        for axis, own in by_axis(entry).items()
    }


def _take_axis(tensor: Tensor, placement: Sharded, degree: int, rank: int) -> Tensor:
    dim = _dim_of(placement, tensor)
    indices = placement.indices(tensor.shape[dim], degree, rank)
    if not indices:
        return tensor.narrow(dim, 0, 0)
    if indices[-1] - indices[0] + 1 == len(indices):
        return tensor.narrow(dim, indices[0], len(indices))
    from torch import int64  # there, as the tensor is

    return tensor.index_select(dim, tensor.new_tensor(indices, dtype=int64))


def _dim_of(placement: Sharded, tensor: Tensor) -> int:
    dim = placement.dim + tensor.ndim if placement.dim < 0 else placement.dim
    if not 0 <= dim < tensor.ndim:
        shape = tuple(tensor.shape)
        raise LayoutError(f"{placement} names dim {placement.dim} of a tensor of shape {shape}")
    return dim


def check(name: str, tensor: Tensor, entry: Entry, *, case: Case) -> None:
    """Raises a `LayoutError` that names the tensor where `entry` can't split it in this case."""
    for axis, placement in by_axis(entry).items():
        if axis not in case.mesh and axis != "dp":
            raise LayoutError(
                f"{name}: the layout names mesh axis {axis!r}{did_you_mean(axis, case.mesh)}"
            )
        if isinstance(placement, Only) and not 0 <= placement.coordinate < case.mesh.get(axis, 1):
            raise LayoutError(f"{name}: {placement} on the axis {axis!r} of {dict(case.mesh)}")
    try:
        for rank in range(case.world_size):
            take(tensor, entry, case=case, rank=rank)
    except LayoutError as error:
        raise LayoutError(f"{name} {tuple(tensor.shape)}: {error}") from None


def replicas(
    entry: Entry, shape: tuple[int, ...], *, case: Case, over: Collection[str] | None = None
) -> list[list[int]]:
    """Groups of two or more ranks that hold the same elements.

    Args:
        over: the mesh axes along which the ranks of a group may differ; by default all but "dp",
            whose coordinates have data of their own.
    """
    over = [axis for axis in case.mesh if axis != "dp"] if over is None else over
    groups: dict[tuple[Any, ...], list[int]] = {}
    for rank in range(case.world_size):
        if not holds(entry, case=case, rank=rank):
            continue
        coordinates = case.coordinates(rank)
        held: list[Any] = [v for axis, v in coordinates.items() if axis not in over]
        for axis, placement in by_axis(entry).items():
            degree, coordinate = along(axis, case, rank)
            if isinstance(placement, (Partial, Only)):
                held.append(coordinate)
            elif not isinstance(placement, Replicate):
                held.append(tuple(placement.indices(shape[placement.dim], degree, coordinate)))
        groups.setdefault(tuple(held), []).append(rank)
    return [ranks for ranks in groups.values() if len(ranks) > 1]


def is_same_part(one: Placement, other: Placement, shape: tuple[int, ...], degree: int) -> bool:
    """Whether two placements of a tensor of this shape put the same elements on each rank."""
    if not (isinstance(one, Sharded) and isinstance(other, Sharded)):
        return one == other
    n, same = shape[one.dim], one.dim % len(shape) == other.dim % len(shape)
    return same and all(
        one.indices(n, degree, r) == other.indices(n, degree, r) for r in range(degree)
    )


def is_sharded(entry: Entry, case: Case, *, axis: str | None = None) -> bool:
    """Whether some rank holds less than the full tensor in this case (by this axis, if given)."""
    return any(
        isinstance(placement, (Shard, Heads, Blocks))
        and (axis is None or axis in covered(name, case))
        and along(name, case, 0)[0] > 1
        and not (isinstance(placement, Heads) and placement.heads == 1)  # one head: all hold it
        for name, placement in by_axis(entry).items()
    )
