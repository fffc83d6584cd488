"""Attention by heads: split, turned by position, attended, merged.

Legend: B batch, S sequence, D head_dim, A query heads, G key/value heads.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

ROTARY_BASE = 10_000.0


def rotary(x: Tensor, positions: Tensor) -> Tensor:
    """Half-rotation of x [B, heads, S, D] by positions [S].

    The angles and the rotation are float64 for a float64 x and float32 for any other: in
    bfloat16 neighbouring positions beyond 256 would coincide.
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    half = torch.arange(x.shape[-1] // 2, device=x.device, dtype=dtype)
    frequency = ROTARY_BASE ** (-2.0 * half / x.shape[-1])  # [D / 2]
    angle = positions.to(dtype)[:, None] * frequency  # [S, D / 2]
    cos, sin = angle.cos(), angle.sin()
    first, second = x.to(dtype).chunk(2, dim=-1)  # [B, heads, S, D / 2] each
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, S, heads · D] → [B, heads, S, D]."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, heads, S, D] → [B, S, heads · D]."""
    return x.transpose(1, 2).flatten(2)


def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, dropout: float = 0.0) -> Tensor:
    """q [B, A, S, D], k and v [B, G, S, D] → [B, A, S, D]; query head a reads K/V head a·G/A. Each
    weight [B, A, S, S] is dropped with the chance ``dropout``."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)


def check_heads(*, heads: int, kv_heads: int, head_dim: int, rotary: bool) -> None:
    """Raises ``ValueError`` for head counts that no attention can have, at any degree."""
    if heads % kv_heads:
        raise ValueError(f"heads={heads} is not divisible by kv_heads={kv_heads}")
    if rotary and head_dim % 2:
        raise ValueError(f"head_dim={head_dim} is odd: rotary turns pairs of elements")
