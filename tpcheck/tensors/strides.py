"""How a tensor is laid out in memory: the same numbers under other strides.

Some faults show only where a tensor is transposed, sliced, offset or expanded: a kernel that
reads strides as contiguous, a collective that fills a contiguous copy and loses it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

from tpcheck.case import MEMORY_FORMATS, Case
from tpcheck.tensors.reserved import reserved

#: Elements between giant rows. The offset of the third does not fit into 32 bits; with a power of
#: two, an offset that wraps would be that of another row.
FAR = 2**30 + 64
#: Giant rows at most: each reserves 8 GB of addresses in float64, of which there are 128 TB.
MOST_FAR = 128


def format_of(case: Case, name: str) -> str:
    """The memory format of one tensor of a case."""
    if case.memory != "mixed":
        return case.memory
    known = [memory for memory in MEMORY_FORMATS if memory not in ("mixed", "aliased")]
    return known[zlib.crc32(f"{case.seed} {name}".encode()) % len(known)]


def lay_out(tensor: Tensor, memory: str) -> Tensor:
    """`tensor`'s numbers in the named memory format (see `case.MEMORY_FORMATS`).

    "permuted" has heads before tokens that are behind them in memory. "padded" rows are parts of
    longer ones, as slices of a fused projection are; "giant" rows are so far apart that the third
    has no offset of 32 bits. Always a storage of its own, not a view of the full tensor; what lies
    between the elements is poison. Where a format is impossible (a transpose of a vector, an
    expansion of rows that differ) the tensor comes back contiguous.
    """
    made = None
    if memory == "transposed" and tensor.ndim >= 2:
        turned = tensor.transpose(-1, -2)  # may be contiguous as it is, over a larger storage
        made = turned.clone(memory_format=torch.contiguous_format).transpose(-1, -2)
    elif memory == "permuted" and tensor.ndim >= 3:
        turned = tensor.transpose(-3, -2)
        made = turned.clone(memory_format=torch.contiguous_format).transpose(-3, -2)
    elif memory == "sliced" and tensor.ndim >= 1:
        made = _within(tensor, 2 * tensor.shape[-1] + 1, slice(1, None, 2))
    elif memory == "padded" and tensor.ndim >= 1:
        made = _within(tensor, tensor.shape[-1] + 5, slice(2, 2 + tensor.shape[-1]))
    elif memory == "offset":
        flat = _poison(tensor, tensor.numel() + 8)
        made = flat[3 : 3 + tensor.numel()].view(tensor.shape).copy_(tensor)
    elif memory == "giant":
        made = _giant(tensor)
    elif memory == "expanded" and _repeats(tensor):
        made = tensor[:1].clone().expand_as(tensor)
    return tensor.clone(memory_format=torch.contiguous_format) if made is None else made


def _repeats(tensor: Tensor) -> bool:
    repeats = tensor.ndim >= 2 and tensor.shape[0] > 1
    return repeats and torch.equal(tensor, tensor[:1].expand_as(tensor))


def _within(tensor: Tensor, width: int, columns: slice) -> Tensor:
    """It in columns of rows that are wider."""
    return _poison(tensor, *tensor.shape[:-1], width)[..., columns].copy_(tensor)


def _poison(like: Tensor, *shape: int) -> Tensor:
    """Numbers that show in whatever is computed from them. In bfloat16 not NaN: oneDNN's products
    of rows of an odd length read the number behind a row, and multiply it by zero."""
    if like.dtype == torch.bfloat16:
        return like.new_full(shape, 2.0**100)
    if like.is_floating_point() or like.is_complex():
        return like.new_full(shape, torch.nan)
    return like.new_full(shape, True if like.dtype == torch.bool else torch.iinfo(like.dtype).max)


def _may_be_giant(tensor: Tensor) -> bool:
    rows = tensor.ndim >= 2 and 1 < tensor.shape[0] <= MOST_FAR and tensor.numel() > 0
    return rows and tensor.device.type == "cpu"


def _giant(tensor: Tensor) -> Tensor | None:
    """Rows of dim 0 that are `FAR` elements apart, in memory that is reserved and not used."""
    if not _may_be_giant(tensor):
        return None
    row = tensor[0].numel()
    try:
        flat = reserved(tensor.dtype, (tensor.shape[0] - 1) * FAR + row)
    except OSError:
        return None
    strides = (FAR, *tensor[0].contiguous().stride())
    return flat.as_strided(tensor.shape, strides).copy_(tensor)


def spanned(case: Case, *tensors: Mapping[str, Tensor]) -> int:
    """Bytes that the largest of the named tensors of a case takes with all that lies between its
    giant rows; 0 where none has such."""
    found = 0
    for name, tensor in (item for named in tensors for item in named.items()):
        giant = tensor.is_floating_point() and format_of(case, name) == "giant"
        if giant and _may_be_giant(tensor):
            found = max(found, (tensor.shape[0] - 1) * FAR * tensor.itemsize)
    return found


def repeat_first_row(tensor: Tensor) -> Tensor:
    """Full tensors of an "expanded" case: dim 0 repeats one row, so that it can be expanded."""
    if tensor.ndim < 2 or not tensor.is_floating_point():
        return tensor
    return tensor[:1].expand_as(tensor).contiguous()
