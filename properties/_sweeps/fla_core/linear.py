"""Linear attention of the installed fla-core, recurrent, in chunks and in parallel.

Gates are logarithms of decays. Their gradient is the difference of two sums in kernels, which the
reference's is not: bounds are those of the sums (`rounding`).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released import recurrences
from fixtures.released.sequences import EACH, KEYS, QKV, VALUES, op
from tpcheck import Argument

# ---- a decay of each key, or of each head, by a gate


def _gated(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> tuple[Tensor, ...]:
    return q, k, v, F.logsigmoid(gate)


def _decayed(place: str, gate: Argument) -> Any:
    return op(
        place,
        QKV | {"gate": gate},
        recurrences.linear,
        prepare=_gated,
        rounding=recurrences.linear_pairs,
    )


chunk_gla = _decayed("ops.gla.chunk_gla", KEYS)
fused_recurrent_gla = _decayed("ops.gla.fused_recurrent_gla", KEYS)
chunk_simple_gla = _decayed("ops.simple_gla.chunk_simple_gla", EACH)
fused_chunk_simple_gla = _decayed("ops.simple_gla.fused_chunk_simple_gla", EACH)
parallel_simple_gla = _decayed("ops.simple_gla.parallel_simple_gla", EACH)
fused_recurrent_simple_gla = _decayed("ops.simple_gla.fused_recurrent_simple_gla", EACH)

# ---- a decay that is fixed, or none


def _constant(log: Tensor, q: Tensor) -> Tensor:
    """log [H] as [B, T, H]."""
    return log.to(q.dtype).expand(q.shape[:3])


def _retention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = torch.arange(q.shape[2], dtype=torch.float64)
    return recurrences.linear(q, k, v, _constant((1 - 2.0 ** (-5 - heads)).log(), q))


chunk_retention = op("ops.retention.chunk_retention", QKV, _retention)
fused_chunk_retention = op("ops.retention.fused_chunk_retention", QKV, _retention)
fused_recurrent_retention = op("ops.retention.fused_recurrent_retention", QKV, _retention)
parallel_retention = op("ops.retention.parallel_retention", QKV, _retention)


def _lightning(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of layer 1 of 4."""
    heads = torch.arange(q.shape[2], dtype=torch.float64)
    return recurrences.linear(q, k, v, _constant(-(8 / q.shape[2] * (1 - 1 / 4)) * heads, q))


chunk_lightning_attn = op(
    "ops.lightning_attn.chunk_lightning_attn", QKV, _lightning, layer_idx=1, num_layers=4
)
fused_recurrent_lightning_attn = op(
    "ops.lightning_attn.fused_recurrent_lightning_attn", QKV, _lightning, layer_idx=1, num_layers=4
)


def _plain(place: str) -> Any:
    return op(place, QKV, recurrences.linear, normalize=False)


chunk_linear_attn = _plain("ops.linear_attn.chunk_linear_attn")
fused_chunk_linear_attn = _plain("ops.linear_attn.fused_chunk_linear_attn")
fused_recurrent_linear_attn = _plain("ops.linear_attn.fused_recurrent_linear_attn")


def _positive(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return F.softplus(q) + 0.5, F.softplus(k) + 0.5, v


def _normalized(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    total = (q * k.cumsum(1)).sum(-1, keepdim=True) * q.shape[3] ** -0.5
    return recurrences.linear(q, k, v) / (total + 1e-10)


def _divided(place: str) -> Any:
    return op(place, QKV, _normalized, prepare=_positive, normalize=True)


chunk_linear_attn_normalized = _divided("ops.linear_attn.chunk_linear_attn")
fused_chunk_linear_attn_normalized = _divided("ops.linear_attn.fused_chunk_linear_attn")
fused_recurrent_linear_attn_normalized = _divided("ops.linear_attn.fused_recurrent_linear_attn")

# ---- Taylor's polynomial of the exponential, and its square


def _causal(scores: Tensor) -> Tensor:
    """scores [B, H, T, T] of steps that are not later."""
    return scores.tril()


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * q.shape[3] ** -0.5


def _weighted(weights: Tensor, v: Tensor, eps: float) -> Tensor:
    total = weights.sum(-1, keepdim=True) + eps
    return (weights @ v.transpose(1, 2) / total).transpose(1, 2)


def _based(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    return _weighted(_causal(1 + scores + scores.square() / 2), v, 1e-6)


fused_chunk_based = op(
    "ops.based.fused_chunk_based", QKV, _based, sizes={"keys": (8, 16), "values": (8, 16, 32)}
)
parallel_based = op("ops.based.parallel_based", QKV, _based)
parallel_rebased = op(
    "ops.rebased.parallel_rebased",
    QKV,
    lambda q, k, v: _weighted(_causal(_scores(q, k).square()), v, 1e-5),
)

# ---- RWKV-6: reads the state before the step, and its own value with another weight


def _bonus(r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    return r, k, v, F.logsigmoid(w), u


def _rwkv6(linear: Any) -> Any:
    def reference(r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
        before = linear(F.pad(r, (0, 0, 0, 0, 0, 1))[:, 1:], k, v, w)
        own = (r * k * u).sum(-1, keepdim=True) * v * r.shape[3] ** -0.5
        return F.pad(before, (0, 0, 0, 0, 1, 0))[:, :-1] + own

    return reference


def _of_rwkv6(place: str) -> Any:
    return op(
        place,
        {"r": KEYS, "k": KEYS, "v": VALUES, "w": KEYS, "u": Argument("heads", "keys")},
        _rwkv6(recurrences.linear),
        prepare=_bonus,
        rounding=_rwkv6(recurrences.linear_pairs),
    )


chunk_rwkv6 = _of_rwkv6("ops.rwkv6.chunk_rwkv6")
fused_recurrent_rwkv6 = _of_rwkv6("ops.rwkv6.fused_recurrent_rwkv6")
