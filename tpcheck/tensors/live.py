"""Where a rank's tensor lies, as the tensor itself says: a DTensor, or by Megatron's attributes."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

from tpcheck import placement
from tpcheck.case import Case
from tpcheck.placement import Entry, Partial, Replicate, by_axis, take


def module_of_dtensor() -> Any:
    """DTensor's class, or None where it was never imported (then no tensor is one)."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def is_dtensor(tensor: Any) -> bool:
    cls = module_of_dtensor()
    return cls is not None and isinstance(tensor, cls)


def live_entry(tensor: Any) -> Entry:
    """The placements of a DTensor in tpcheck's words."""
    names = tensor.device_mesh.mesh_dim_names or ("tp",)
    entry: dict[str, placement.Placement] = {}
    later: dict[str, placement.Placement] = {}
    for axis, own in zip(names, tensor.placements, strict=True):
        if own.is_replicate():
            entry[axis] = Replicate()
        elif own.is_partial():
            entry[axis] = Partial()
        elif type(own).__name__ == "_StridedShard":
            dim = own.dim % tensor.ndim
            if any(p.is_shard(dim) for p in tensor.placements if p is not own):
                # FSDP's: cut after the axes to its right
                later = {axis: placement.Shard(dim), **later}
            else:  # a fused weight: so many blocks, each cut on its own
                block = tensor.shape[dim] // own.split_factor
                entry[axis] = placement.Blocks(
                    dim, ((block, placement.Shard(dim)),) * own.split_factor
                )
        else:
            entry[axis] = placement.Shard(own.dim)
    return entry | later


def partition_entry(tensor: Tensor, full: Tensor) -> dict[str, placement.Placement] | None:
    """The placement that Megatron's attributes give a parameter; None where it has none.

    `partition_stride` s > 1 says that dim `partition_dim` is s blocks, each split on its own.
    """
    if not getattr(tensor, "tensor_model_parallel", False):
        return None
    dim, stride = tensor.partition_dim, tensor.partition_stride  # type: ignore[attr-defined]
    if stride == 1:
        return {"tp": placement.Shard(dim)}
    block = full.shape[dim] // stride
    return {"tp": placement.Blocks(dim, ((block, placement.Shard(dim)),) * stride)}


def local(tensor: Tensor) -> Tensor:
    """The rank's own part of a DTensor; any other tensor as it is."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]


def like(output: Tensor, seed: Tensor) -> Tensor:
    """A rank's part `seed` as a DTensor that lies as `output` does, where that is one."""
    if not is_dtensor(output):
        return seed
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(seed, output.device_mesh, output.placements)  # type: ignore[attr-defined]


def cut_by_hand(
    tensor: Tensor, full: Tensor, entry: Entry, case: Case, rank: int
) -> dict[str, placement.Placement]:
    """The layout's placements along axes that a DTensor's mesh does not have: of experts, say,
    that EP left on the rank and FSDP made DTensors over dp. They hold where what the DTensor
    takes for the whole is the layout's part along them."""
    if not is_dtensor(tensor):
        return {}
    known = tensor.device_mesh.mesh_dim_names or ("tp",)  # type: ignore[attr-defined]
    others = {axis: own for axis, own in by_axis(entry).items() if axis not in known}
    part = take(full, others, case=case, rank=rank)
    return others if tensor.shape == part.shape else {}
