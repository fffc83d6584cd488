"""How a tensor is placed, as it says itself: a DTensor, or by the attributes of Megatron."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpcheck import placement
from tpcheck.axes import covered
from tpcheck.case import Case
from tpcheck.placement import Entry, Partial, Replicate, Shard, by_axis, take
from tpcheck.tensors.meshes import Axes, axes_in, axes_of, named


def module_of_dtensor() -> Any:
    """DTensor's class, or None where it was never imported (then no tensor is one)."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def is_dtensor(tensor: Any) -> bool:
    cls = module_of_dtensor()
    return cls is not None and isinstance(tensor, cls)


def placed(tensor: Any, case: Case) -> dict[str, placement.Placement]:
    """As `live_entry`, along the axes of a case, or those that are made of them, whatever the
    DTensor's own mesh calls them.

    Raises:
        InvalidArgument: a mesh with ranks that no axes of the case have together.
    """
    return live_entry(tensor, axes_in(tensor.device_mesh, case))


def live_entry(
    tensor: Any, names: Sequence[str | None] | None = None
) -> dict[str, placement.Placement]:
    """The placements of a DTensor in tpcheck's words.

    Args:
        names: of its mesh's axes; by default its own. One that is None is left out.
    """
    names = axes_of(tensor.device_mesh) if names is None else names
    entry: dict[str, placement.Placement] = {}
    later: dict[str, placement.Placement] = {}
    for axis, own in zip(names, tensor.placements, strict=True):
        if axis is None:
            continue
        if own.is_replicate():
            entry[axis] = Replicate()
        elif own.is_partial():
            entry[axis] = Partial()
        elif type(own).__name__ == "_StridedShard":
            dim = own.dim % tensor.ndim
            if any(p.is_shard(dim) for p in tensor.placements if p is not own):
                # FSDP's: sharded after the axes to its right
                later = {axis: placement.Shard(dim), **later}
            else:  # a fused weight: so many blocks, each sharded on its own
                block = tensor.shape[dim] // own.split_factor
                entry[axis] = placement.Blocks(
                    dim, ((block, placement.Shard(dim)),) * own.split_factor
                )
        else:
            entry[axis] = placement.Shard(own.dim)
    return entry | later


def plan_placement(tensor: Any, axes: Axes = axes_of) -> Shard | Replicate | None:
    """How a DTensor is placed along tp, in the two words of a plan (packed blocks are a shard of
    their dim); None for a plain tensor.

    Args:
        axes: of a mesh, what its axes are.
    """
    if not is_dtensor(tensor):
        return None
    found = live_entry(tensor, axes(tensor.device_mesh)).get("tp")
    return Shard(found.dim) if isinstance(found, placement.Sharded) else Replicate()


def mesh_axes(tensor: Tensor, axes: Axes = named) -> tuple[str, ...]:
    """The mesh axes of every DTensor in a tensor; none of any other tensor."""
    meshes = (getattr(part, "device_mesh", None) for part in layers(tensor))
    every = (axes(mesh) for mesh in meshes if mesh is not None)
    return tuple(axis for names in every for axis in names if axis is not None)


def layers(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor and, of wrappers such as DTensor, the tensors inside."""
    yield tensor
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for inner in (getattr(tensor, name) for name in names):
            if isinstance(inner, Tensor):
                yield from layers(inner)


def partition_entry(tensor: Tensor, full: Tensor) -> dict[str, placement.Placement] | None:
    """The placement that Megatron's attributes give a parameter; None where it has none, or has
    none that can be: other frameworks set `tensor_model_parallel` without a `partition_dim`.

    `partition_stride` s > 1 says that dim `partition_dim` is s blocks, each split on its own.
    """
    dim = getattr(tensor, "partition_dim", None)
    stride = getattr(tensor, "partition_stride", None)
    if not is_marked(tensor) or not (_is_integer(dim) and _is_integer(stride)):
        return None
    if not 0 <= dim < full.ndim or stride < 1 or full.shape[dim] % stride:
        return None
    if stride == 1:
        return {"tp": placement.Shard(dim)}
    block = full.shape[dim] // stride
    return {"tp": placement.Blocks(dim, ((block, placement.Shard(dim)),) * stride)}


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def is_marked(tensor: Tensor) -> bool:
    """Whether a framework's mark says that a parameter is sharded: Megatron-core's, DeepSpeed's."""
    return getattr(tensor, "tensor_model_parallel", False) is True


def says_how(tensor: Tensor) -> bool:
    """Whether a tensor says itself that it is sharded."""
    return is_dtensor(tensor) or is_marked(tensor)


def marked_entry(tensor: Tensor, full: Tensor) -> dict[str, placement.Placement]:
    """The placement of a parameter that is marked as sharded by who does not say how (DeepSpeed's
    AutoTP), so that it is no word against a layout's: along the one dim that is shorter than the
    whole's; empty where there is none."""
    if not is_marked(tensor) or tensor.ndim != full.ndim:
        return {}
    dims = [dim for dim in range(full.ndim) if tensor.shape[dim] != full.shape[dim]]
    shorter = len(dims) == 1 and tensor.shape[dims[0]] < full.shape[dims[0]]
    return {"tp": placement.Shard(dims[0])} if shorter else {}


def local(tensor: Tensor) -> Tensor:
    """The rank's own part of a DTensor; any other tensor as it is."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]


def like(output: Tensor, seed: Tensor) -> Tensor:
    """A rank's part `seed` of an output's upstream gradient as a DTensor, where the output is one:
    placed as that, but of terms of a sum each has all of it."""
    if not is_dtensor(output):
        return seed
    from torch.distributed.tensor import DTensor, Replicate

    of: Any = output
    placements = [Replicate() if own.is_partial() else own for own in of.placements]
    if seed.ndim != of.ndim:  # it is wrong
        return DTensor.from_local(seed, of.device_mesh, placements)
    # without its shape torch takes other ranks' parts for as large as this one
    whole: Any = {"shape": of.shape, "stride": _whole_stride(seed, of.shape)}
    return DTensor.from_local(seed, of.device_mesh, placements, **whole)


def _whole_stride(part: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor of this shape that lies in memory as a part of it does."""
    stride = list(part.stride())
    for dim, (own, whole) in enumerate(zip(part.shape, shape, strict=True)):
        for other in range(part.ndim):
            if own and other != dim and part.stride(other) >= part.stride(dim) > 0:
                stride[other] = stride[other] * whole // own
    return tuple(stride)


def placed_whole(
    tensor: Any, full: Tensor, entry: Entry, case: Case, rank: int
) -> dict[str, placement.Placement]:
    """How a DTensor is placed, and how it is along the axes that its mesh does not have."""
    return _sharded_by_hand(tensor, full, entry, case, rank) | placed(tensor, case)


def _sharded_by_hand(
    tensor: Tensor, full: Tensor, entry: Entry, case: Case, rank: int
) -> dict[str, placement.Placement]:
    """The layout's placements along axes that a DTensor's mesh does not have: of experts, say,
    that EP left on the rank and FSDP made DTensors over dp. They hold where what the DTensor
    takes for the whole is the layout's part along them."""
    if not is_dtensor(tensor):
        return {}
    own = axes_in(tensor.device_mesh, case)  # type: ignore[attr-defined]
    known = {axis for name in own if name is not None for axis in covered(name, case)}
    others = {axis: own for axis, own in by_axis(entry).items() if axis not in known}
    part = take(full, others, case=case, rank=rank)
    return others if tensor.shape == part.shape else {}
