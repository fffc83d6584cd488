"""How a tensor is laid out in memory: the same numbers under other strides.

Some faults show only where a tensor is transposed, sliced, offset or expanded: a kernel that
reads strides as contiguous, a collective that fills a contiguous copy and loses it.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from tpcheck.case import MEMORY_FORMATS, Case


def format_of(case: Case, name: str) -> str:
    """The memory format of one tensor of a case."""
    if case.memory != "mixed":
        return case.memory
    known = [memory for memory in MEMORY_FORMATS if memory != "mixed"]
    return known[zlib.crc32(f"{case.seed} {name}".encode()) % len(known)]


def lay_out(tensor: Tensor, memory: str) -> Tensor:
    """`tensor`'s numbers in the named memory format (see `case.MEMORY_FORMATS`).

    "padded" rows are parts of longer ones, as slices of a fused projection are. Always a storage of
    its own, not a view of the full tensor. Where a format is impossible (a transpose of a vector,
    an expansion of rows that differ) the tensor comes back contiguous.
    """
    if memory == "transposed" and tensor.ndim >= 2:
        turned = tensor.transpose(-1, -2)  # may be contiguous as it is, over a larger storage
        return turned.clone(memory_format=torch.contiguous_format).transpose(-1, -2)
    if memory == "sliced" and tensor.ndim >= 1:
        wide = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1] + 1)
        view = wide[..., 1::2]
        return view.copy_(tensor)
    if memory == "padded" and tensor.ndim >= 1:
        wide = tensor.new_zeros(*tensor.shape[:-1], tensor.shape[-1] + 5)
        return wide[..., 2 : 2 + tensor.shape[-1]].copy_(tensor)
    if memory == "offset":
        flat = tensor.new_zeros(tensor.numel() + 3)
        return flat[3:].view(tensor.shape).copy_(tensor)
    repeats = memory == "expanded" and tensor.ndim >= 2 and tensor.shape[0] > 1
    if repeats and torch.equal(tensor, tensor[:1].expand_as(tensor)):
        return tensor[:1].clone().expand_as(tensor)
    return tensor.clone(memory_format=torch.contiguous_format)


def repeat_first_row(tensor: Tensor) -> Tensor:
    """Full tensors of an "expanded" case: dim 0 repeats one row, so that it can be expanded."""
    if tensor.ndim < 2 or not tensor.is_floating_point():
        return tensor
    return tensor[:1].expand_as(tensor).contiguous()
