"""A fingerprint of a tensor's bits: replicas must agree on it."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

#: The digest of a tensor that is not there.
NOTHING = "none"


def fingerprint(tensor: Tensor | None) -> str:
    """A digest of a tensor's shape, dtype and bits: replicas must agree on it."""
    if tensor is None:
        return NOTHING
    data = tensor.detach().cpu().contiguous()
    head = f"{data.dtype}{tuple(data.shape)}".encode()
    # −0.0 and 0.0 are one number, and all NaNs are NaN: one pattern of bits each
    if data.is_floating_point():
        data = (data.float() if data.element_size() == 1 else data) + 0
        data = data.masked_fill_(data.isnan(), torch.nan)
    # a dim of size 1 has any stride and is contiguous all the same; a view of bytes wants stride 1
    flat = data.as_strided((data.numel(),), (1,))
    raw = flat.view(torch.uint8).numpy().tobytes() if data.numel() else b""
    return hashlib.blake2b(head + raw, digest_size=12).hexdigest()
