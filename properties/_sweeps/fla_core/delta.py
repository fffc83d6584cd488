"""Delta rules of the installed fla-core: what is known of a key is taken from the value first.

Gates' gradients are bounded as those of `linear.py`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released import recurrences
from fixtures.released.sequences import EACH, KEYS, QKV, VALUES, op
from tpcheck import Argument

_HALVES = ("bfloat16", "float16")  # the operation refuses float32


def _constant(argument: Argument) -> Argument:
    return Argument(*argument.shape, gradient=False)


def _unit(key: Tensor) -> Tensor:
    return F.normalize(key, dim=-1)


# ---- one decay, or none


def _told(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    return q, _unit(k), v, beta.sigmoid()


def _delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    beta = beta[..., None]
    return recurrences.delta(q, k, beta * v, beta * k)


fused_recurrent_delta_rule = op(
    "ops.delta_rule.fused_recurrent_delta_rule", QKV | {"beta": EACH}, _delta, prepare=_told
)
chunk_delta_rule = op(
    "ops.delta_rule.chunk_delta_rule", QKV | {"beta": EACH}, _delta, prepare=_told, dtypes=_HALVES
)


def _gated(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    return q, _unit(k), v, F.logsigmoid(gate), beta.sigmoid()


def _decayed(delta: Any) -> Any:
    def reference(q: Tensor, k: Tensor, v: Tensor, log: Tensor, beta: Tensor) -> Tensor:
        beta = beta[..., None]
        return delta(q, k, beta * v, beta * k, log)

    return reference


def _of_gate(place: str, gate: Argument, *, backward: bool = True, **options: Any) -> Any:
    """
    Args:
        gate: one decay, or one of each key.
        backward: False where the operation has none.
    """
    arguments = QKV | {"gate": gate, "beta": EACH}
    return op(
        place,
        arguments if backward else {name: _constant(a) for name, a in arguments.items()},
        _decayed(recurrences.delta),
        prepare=_gated,
        rounding=_decayed(recurrences.delta_pairs),
        **options,
    )


chunk_gated_delta_rule = _of_gate("ops.gated_delta_rule.chunk_gated_delta_rule", EACH)
fused_recurrent_gated_delta_rule = _of_gate(
    "ops.gated_delta_rule.fused_recurrent_gated_delta_rule",
    EACH,
    backward=False,
    call=lambda rule, q, k, v, log, beta: rule(q, k, v, g=log, beta=beta)[0],
)
chunk_kda = _of_gate("ops.kda.chunk_kda", KEYS)
fused_recurrent_kda = _of_gate("ops.kda.fused_recurrent_kda", KEYS, backward=False)

# ---- what is known by another key, and by another gate


def _comba(low_rank: Any) -> Any:
    """Hu et al., "Comba", 2025: what is known is read before the decay."""

    def reference(*given: Tensor) -> Tensor:
        q, k, v, p, log, beta = given
        beta = beta[..., None]
        return low_rank(q, k, beta * v, -beta * p, k, log)

    return reference


def _of_comba(place: str, *, backward: bool, call: Any) -> Any:
    arguments = QKV | {"p": KEYS, "gate": EACH, "beta": EACH}
    return op(
        place,
        arguments if backward else {name: _constant(a) for name, a in arguments.items()},
        _comba(recurrences.low_rank),
        prepare=lambda q, k, v, p, gate, beta: (
            (q, _unit(k), v, _unit(p), F.logsigmoid(gate), beta.sigmoid())
        ),
        rounding=_comba(recurrences.low_rank_pairs),
        call=call,
    )


chunk_comba = _of_comba(
    "ops.comba.chunk_comba", backward=True, call=lambda rule, *given: rule(*given)[0]
)
fused_recurrent_comba = _of_comba(
    "ops.comba.fused_recurrent_comba",
    backward=False,
    call=lambda rule, q, k, v, p, log, beta: rule(q, k, p, v, log, beta)[0],
)


def _erased(delta: Any) -> Any:
    def reference(*given: Tensor) -> Tensor:
        q, k, v, log, erase, write = given
        return delta(q, k, write * v, erase * k, log)

    return reference


def _gdn2(place: str, *, backward: bool) -> Any:
    arguments = QKV | {"gate": KEYS, "erase": KEYS, "write": VALUES}
    return op(
        place,
        arguments if backward else {name: _constant(a) for name, a in arguments.items()},
        _erased(recurrences.delta),
        prepare=lambda q, k, v, gate, erase, write: (
            (q, _unit(k), v, F.logsigmoid(gate), erase.sigmoid(), write.sigmoid())
        ),
        rounding=_erased(recurrences.delta_pairs),
    )


chunk_gdn2 = _gdn2("ops.gdn2.chunk_gdn2", backward=True)
fused_recurrent_gdn2 = _gdn2("ops.gdn2.fused_recurrent_gdn2", backward=False)

# ---- several keys a step


def _products(delta: Any) -> Any:
    def reference(*given: Tensor) -> Tensor:
        """q and the decays at every second step: the first of a step's two keys comes after its
        decay, and the second is read."""
        q, k, v, log, beta = given
        asked, kept = torch.zeros_like(k), torch.zeros_like(beta)
        asked = torch.stack((asked[:, 1::2], q), 2).flatten(1, 2)
        kept = torch.stack((log, kept[:, 1::2]), 2).flatten(1, 2)
        beta = beta[..., None]
        return delta(asked, k, beta * v, beta * k, kept)[:, 1::2]

    return reference


def _every_key(*drawn: Tensor) -> tuple[Tensor, ...]:
    q, k, v, gate, beta = drawn
    k, v, beta = (one.flatten(1, 2) for one in (_unit(k), v, beta.sigmoid()))
    return q, k, v, F.logsigmoid(gate), beta


_TWICE = {
    "q": KEYS,
    "k": Argument("batch", "length", 2, "heads", "keys"),
    "v": Argument("batch", "length", 2, "heads", "values"),
    "gate": EACH,
    "beta": Argument("batch", "length", 2, "heads"),
}
chunk_gated_delta_product = op(
    "ops.gated_delta_product.chunk_gated_delta_product",
    _TWICE,
    _products(recurrences.delta),
    prepare=_every_key,
    rounding=_products(recurrences.delta_pairs),
    dtypes=_HALVES,
    num_householder=2,
)

# ---- a matrix of low rank besides the decay


def _of_low_rank(*given: Tensor) -> tuple[Tensor, ...]:
    q, k, v, direction, rate, *gate = given
    direction = _unit(direction)
    return q, k, v, -direction, direction * rate.sigmoid(), *map(F.logsigmoid, gate)


_LOW = QKV | {"direction": KEYS, "rate": KEYS}


def _dplr(place: str, *, backward: bool = True, **options: Any) -> Any:
    arguments = _LOW | {"gate": KEYS}
    return op(
        place,
        arguments if backward else {name: _constant(a) for name, a in arguments.items()},
        recurrences.low_rank,
        prepare=_of_low_rank,
        rounding=recurrences.low_rank_pairs,
        **options,
    )


chunk_dplr_delta_rule = _dplr("ops.generalized_delta_rule.dplr.chunk_dplr_delta_rule")
fused_recurrent_dplr_delta_rule = _dplr(
    "ops.generalized_delta_rule.dplr.fused_recurrent_dplr_delta_rule", backward=False
)
fused_recurrent_iplr_delta_rule = op(
    "ops.generalized_delta_rule.iplr.fused_recurrent_iplr_delta_rule",
    _LOW,
    recurrences.low_rank,
    prepare=_of_low_rank,
)
chunk_iplr_delta_rule = op(
    "ops.generalized_delta_rule.iplr.chunk_iplr_delta_rule",
    {name: _constant(a) for name, a in _LOW.items()},
    recurrences.low_rank,
    prepare=_of_low_rank,
)


def _rwkv7(rule: Any, *given: Tensor) -> Tensor:
    r, k, v, a, b, w = given
    return rule(r, w, k, v, a, b, scale=r.shape[3] ** -0.5)[0]


chunk_rwkv7 = _dplr("ops.rwkv7.chunk_rwkv7", call=_rwkv7)
fused_recurrent_rwkv7 = _dplr("ops.rwkv7.fused_recurrent_rwkv7", backward=False, call=_rwkv7)
fused_mul_recurrent_rwkv7 = op(
    "ops.rwkv7.fused_mul_recurrent_rwkv7",
    {name: _constant(a) for name, a in (_LOW | {"gate": KEYS}).items()},
    lambda r, k, v, direction, rate, w: recurrences.low_rank(
        r, k, v, -direction, direction * rate, w, scale=1.0
    ),
    prepare=lambda r, k, v, direction, rate, gate: (
        (r, k, v, _unit(direction), rate.sigmoid(), F.logsigmoid(gate))
    ),
    call=lambda rule, r, k, v, direction, rate, w: rule(r, w, k, v, direction, rate)[0],
)
