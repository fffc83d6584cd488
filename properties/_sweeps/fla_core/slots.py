"""Attention over slots, of the installed fla-core: two recurrences with a softmax between them, and
the additive gate that two of them have.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released import recurrences
from fixtures.released.sequences import QKV, op
from tpcheck import Argument

# ---- slots: two recurrences with a softmax between them


def _slots(linear: Any) -> Any:
    def reference(q: Tensor, k: Tensor, v: Tensor, s: Tensor, log: Tensor) -> Tensor:
        p = _by_values(linear, q, k, s, log).softmax(-1)
        return linear(p, s, v, log, scale=1.0)

    return reference


def _by_values(linear: Any, q: Tensor, k: Tensor, s: Tensor, log: Tensor) -> Tensor:
    """S ← S exp(log) + k ⊗ s, o = q S / √K: a decay of each slot."""
    if linear is recurrences.linear:
        decay = log.exp()[:, :, :, None]

        def step(state: Tensor, t: int) -> Tensor:
            return decay[:, t] * state + recurrences.outer(k[:, t], s[:, t])

        return recurrences.run(q, s, step)
    scores = (q[:, :, None] * k[:, None]).sum(-1)  # [B, T, T, H]
    one = torch.ones_like(s[..., :1])
    parts = [
        recurrences.mixed(
            scores * recurrences.paired(one, one, log[..., m]),
            s[..., m : m + 1],
        )
        for m in range(s.shape[3])
    ]
    return torch.cat(parts, -1) * q.shape[3] ** -0.5


_SLOTS = Argument("batch", "length", "heads", "slots")
_GSA = QKV | {"s": _SLOTS, "gate": _SLOTS}


def _gsa(place: str) -> Any:
    return op(
        place,
        _GSA,
        _slots(recurrences.linear),
        prepare=lambda q, k, v, s, gate: (q, k, v, s, F.logsigmoid(gate)),
        rounding=_slots(recurrences.linear_pairs),
    )


chunk_gsa = _gsa("ops.gsa.chunk_gsa")
fused_recurrent_gsa = _gsa("ops.gsa.fused_recurrent_gsa")


def _additive(s: Tensor) -> tuple[Tensor, Tensor]:
    """exp(s − z) and z before − z, where z is the logarithm of the sum so far of exp(s)."""
    z = s.logcumsumexp(1)
    return (s - z).exp(), torch.cat((z[:, :1], z[:, :-1]), 1) - z


def _abc(q: Tensor, k: Tensor, v: Tensor, s: Tensor) -> Tensor:
    return _slots(recurrences.linear)(q, k, v, *_additive(s))


def _abc_pairs(q: Tensor, k: Tensor, v: Tensor, s: Tensor) -> Tensor:
    return _slots(recurrences.linear_pairs)(q, k, v, *_additive(s))


chunk_abc = op(
    "ops.abc.chunk_abc",
    QKV | {"s": _SLOTS},
    _abc,
    rounding=_abc_pairs,
    sizes=dict.fromkeys(("keys", "values", "slots"), (16, 32)),
)


def _lightnet(linear: Any) -> Any:
    def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        key, log = _additive(k)
        return linear(q, key, v, log)

    return reference


def _of_lightnet(place: str) -> Any:
    return op(
        place,
        QKV,
        _lightnet(recurrences.linear),
        rounding=_lightnet(recurrences.linear_pairs),
    )


chunk_lightnet = _of_lightnet("ops.lightnet.chunk_lightnet")
fused_recurrent_lightnet = _of_lightnet("ops.lightnet.fused_recurrent_lightnet")
