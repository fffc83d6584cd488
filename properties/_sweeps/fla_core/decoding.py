"""One step of decoding with the installed fla-core: a state or a cache, and what is asked of it.
None has a backward.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released import recurrences
from fixtures.released.check import of_arguments, released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import SIZES, strategies
from tpcheck import Argument

#: Tokens of a cache whose keys have one decay taken out.
CHUNK = 16

_SIZES = SIZES | {
    "length": lambda sizes: strategies().sampled_from([1, 2, 15, 16, 17, 33]),
    "keys": lambda sizes: strategies().sampled_from([1, 4, 5, 16, 17]),
    "values": lambda sizes: strategies().sampled_from([1, 4, 5, 16, 17]),
    "width": lambda sizes: strategies().sampled_from([1, 2, 3, 16, 17, 64, 65]),
    "taps": lambda sizes: strategies().integers(2, 4),
}


def _step(fn: Any, reference: Any, shapes: Mapping[str, tuple[Any, ...]], **contract: Any) -> Any:
    """No tensor needs a gradient."""
    arguments = {name: Argument(*shape, gradient=False) for name, shape in shapes.items()}
    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments=arguments,
        sizes=of_arguments(_SIZES, arguments),
        **contract,
    )


# ---- convolutions


def _moved(x: Tensor, cache: Tensor) -> Tensor:
    """x [N, D] after what cache [N, D, W] holds, of which the oldest goes."""
    return torch.cat((cache[..., 1:], x[..., None]), -1)


def _convolved(x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    held = _moved(x, cache)
    return F.silu((held * weight).sum(-1) + bias), held


causal_conv1d_update = _step(
    lambda x, cache, weight, bias: take("modules.convolution.causal_conv1d_update")(
        x, cache, weight=weight, bias=bias, activation="silu"
    ),
    _convolved,
    {"x": ("batch", "width"), "cache": ("batch", "width", "taps")}
    | {"weight": ("width", "taps"), "bias": ("width",)},
    overwrites=("cache",),
)
causal_conv1d_update_states = _step(
    lambda x, state: take("modules.causal_conv1d.ops.causal_conv1d_update_states")(
        x, state.shape[-1], state
    ),
    lambda x, state: torch.cat((state, x.transpose(1, 2)), -1)[..., -state.shape[-1] :],
    {"x": ("batch", "length", "width"), "state": ("batch", "width", "taps")},
)

# ---- a state that is solved for


def _mesa(*given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """von Oswald et al., "MesaNet", 2025: keys and values come to their states, and q is solved for
    the keys', from q over the diagonal on, as the kernel goes."""
    q, k, v, log, more, beta, keys, values = given
    decay, own = log[..., None, None].exp(), beta[..., None] * k
    keys = decay * keys + recurrences.outer(own, k)
    values = decay * values + recurrences.outer(own, v)
    x = q / (keys.diagonal(dim1=-2, dim2=-1) + more + 1e-5)
    x = recurrences.solved(keys, more, x, q - recurrences.read(x, keys) - more * x)
    return recurrences.read(x, values), keys, values


def _of_mesa(*given: Tensor) -> tuple[Tensor, ...]:
    """The state of the keys is a sum of their squares."""
    q, k, v, gate, more, beta, keys, values = given
    unit = (F.normalize(x, dim=-1) for x in (q, k))
    keys = F.normalize(keys, dim=-1)
    squares = keys @ keys.transpose(-2, -1)
    return *unit, v, F.logsigmoid(gate), F.softplus(more) + 0.25, beta.sigmoid(), squares, values


_HEADS = ("batch", "heads")
mesa_net_decoding_one_step = _step(
    lambda *given: take("ops.mesa_net.decoding_one_step.mesa_net_decoding_one_step")(
        *_of_mesa(*given)
    ),
    lambda *given: _mesa(*_of_mesa(*given)),
    {"q": (*_HEADS, "keys"), "k": (*_HEADS, "keys"), "v": (*_HEADS, "values"), "gate": _HEADS}
    | {"more": ("heads", "keys"), "beta": _HEADS}
    | {"state of keys": (*_HEADS, "keys", "keys"), "state of values": (*_HEADS, "keys", "values")},
)

# ---- attention with decayed keys


def _decayed(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> tuple[Tensor, ...]:
    """Two heads of queries for each of keys."""
    return q.flatten(2, 3), k, v, F.logsigmoid(gate.flatten(2, 3))


def _decode(*drawn: Tensor) -> Tensor:
    q, k, v, log = _decayed(*drawn)
    total = log.float().cumsum(1) / math.log(2)
    cache = take("ops.wall_attn.decode.build_wall_kv_cache")(k, total, CHUNK)
    decode = take("ops.wall_attn.decode.parallel_wall_attn_decode")
    last = (q[:, -3:].contiguous(), v.contiguous(), total[:, -3:].contiguous())
    return decode(*last, *cache, None, q.shape[3] ** -0.5, CHUNK)[0]


_QUERIES = ("batch", "length", "heads", 2, "keys")
parallel_wall_attn_decode = _step(
    _decode,
    lambda *drawn: recurrences.wall(*_decayed(*drawn))[:, -3:],  # of the last tokens, up to three
    {"q": _QUERIES, "k": ("batch", "length", "heads", "keys")}
    | {"v": ("batch", "length", "heads", "values"), "gate": _QUERIES},
    dtypes=("float32", "bfloat16"),
    # of others, gates may be stronger than the kernel takes: `parallel_wall_attn_decay`
    families=("normal", "equal", "zeros", "one-hot"),
    large=False,
)
