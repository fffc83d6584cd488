"""What a tensor is, before its numbers are looked at: which forms can be compared, and what the
others are called."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpcheck.tensors.lanes import Lanes

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
#: Bytes of an element → the integers that have its bits.
OF_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
COMPARED = frozenset([*FLOATS, *INTEGERS])
#: Classes of torch's own whose numbers are theirs.
_PLAIN = (Tensor, torch.nn.Parameter)


def dtype_name(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype).removeprefix("torch.")


def odd(tensor: Tensor) -> str | None:
    """What makes a tensor one that can't be compared (`complex64`, `sparse_coo`, the class of a
    wrapper); None of a dense one of a dtype that can."""
    if is_lazy(tensor):
        return "of no shape before a first forward (a lazy module)"
    with torch._C.DisableTorchFunctionSubclass():  # whatever a class says of itself
        if tensor.is_nested:
            return "nested"
        if tensor.is_meta:
            return "meta"
        if tensor.layout != torch.strided:
            return str(tensor.layout).removeprefix("torch.")
        if tensor.dtype not in COMPARED:
            return dtype_name(tensor.dtype)
    return type(tensor).__name__ if _wraps(tensor) else None


def is_freed(tensor: Tensor) -> bool:
    """Whether its storage ends before its last element, as one does whose memory was given back:
    to read or to write it would end the process."""
    if is_lazy(tensor) or tensor.is_nested or tensor.is_meta or tensor.layout != torch.strided:
        return False
    if _wraps(tensor):
        return False
    dtype, count = tensor.dtype, tensor.numel()
    whole = dtype.is_floating_point or dtype.is_complex or dtype in INTEGERS
    if not whole or not count:  # others may be of less than a byte
        return False
    last = count - 1
    if not tensor.is_contiguous():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((size - 1) * step for size, step in steps)
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() < needed


def convert_freed(tensors: Iterable[Tensor], dtype: torch.dtype) -> None:
    """What `Module.to` casts, and whose memory was given back, becomes such of another dtype: to
    read it, as a cast does, would end the process."""
    for tensor in tensors:
        casts = tensor.is_floating_point() or tensor.is_complex()
        if casts and tensor.dtype != dtype and is_freed(tensor):
            tensor.data = torch.empty_like(tensor, dtype=dtype)
            tensor.untyped_storage().resize_(0)


def plain(tensor: Tensor) -> Tensor:
    """The numbers themselves: what a class of the user's adds to `torch.Tensor` is left out, and
    the result of a collective under way is waited for. A wrapper that does not say what it stands
    for comes back as it is."""
    if type(tensor) in (Tensor, Lanes):
        return tensor.detach()
    if not _wraps(tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.detach().as_subclass(Tensor)
    try:
        found = tensor.detach().clone()
    except Exception:  # of the class's own dispatch
        return tensor
    return found if type(found) is Tensor else tensor


def dense(gradient: Tensor) -> Tensor:
    """A gradient with its zeros: an embedding may leave it sparse, and means the same."""
    if gradient.layout == torch.strided or gradient.is_nested:
        return gradient
    if gradient.is_sparse:  # torch 2.13 writes beyond the result of values that are strided
        own, values = gradient.detach(), gradient._values().detach().contiguous()
        gradient = torch.sparse_coo_tensor(
            own._indices(), values, own.shape, check_invariants=False
        )
    return gradient.to_dense()


def as_int64(tensor: Tensor) -> Tensor:
    """Integers and bools such that equal ones stay equal, and no others become so: uint64 by its
    bits."""
    return tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor.to(torch.int64)


def _wraps(tensor: Tensor) -> bool:
    """Whether its numbers are not its own: a class with a dispatch of its own."""
    if type(tensor) in _PLAIN:
        return False
    dispatch = getattr(type(tensor), "__torch_dispatch__", None)
    if isinstance(tensor, Lanes):  # of ours
        return False
    own = dispatch is not None and dispatch is not torch._C._disabled_torch_dispatch_impl
    return is_traceable_wrapper_subclass(tensor) or own
