"""Other recurrences of the installed fla-core: of states without keys, of those that are trained,
of two states, of one for each power of two; and Oja's rule.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released import recurrences
from fixtures.released.sequences import EACH, KEYS, QKV, VALUES, op
from tpcheck import Argument

_WIDE = Argument("batch", "length", "keys")
_OF_KEYS = Argument("keys")


def _constant(arguments: dict[str, Argument]) -> dict[str, Argument]:
    return {name: Argument(*argument.shape, gradient=False) for name, argument in arguments.items()}


# ---- no keys


def _hgrn(x: Tensor, log: Tensor) -> Tensor:
    """h ← exp(log) h + x."""
    states = [x[:, 0]]
    for t in range(1, x.shape[1]):
        states.append(log[:, t].exp() * states[-1] + x[:, t])
    return torch.stack(states, 1)


def _of_hgrn(place: str) -> Any:
    return op(
        place,
        {"x": _WIDE, "gate": _WIDE},
        _hgrn,
        prepare=lambda x, gate: (x, F.logsigmoid(gate)),
    )


chunk_hgrn = _of_hgrn("ops.hgrn.chunk_hgrn")
fused_recurrent_hgrn = _of_hgrn("ops.hgrn.fused_recurrent_hgrn")


def _rwkv4(w: Tensor, u: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The mean of v weighted by exp(k + u) at this step and by exp(k − exp(w)·(steps since the one
    after it)) before."""
    steps = torch.arange(k.shape[1])
    behind = (steps[:, None] - steps - 1)[..., None]
    decayed = k[:, None] - behind.clamp_min(0) * w.exp()  # [B, T, T, C]
    scores = torch.where(behind < 0, (k + u)[:, None], decayed)
    later = (steps[:, None] < steps)[..., None]
    return (scores.masked_fill(later, -torch.inf).softmax(2) * v[:, None]).sum(2)


def _call_rwkv4(rwkv4: Any, w: Tensor, u: Tensor, k: Tensor, v: Tensor) -> Tensor:
    empty = k.new_zeros(k.shape[0], 3, 1, k.shape[2])
    return rwkv4(w, u, k, v, empty)[0]


fused_recurrent_rwkv4 = op(
    "ops.rwkv4.fused_recurrent_rwkv4",
    {"w": _OF_KEYS, "u": _OF_KEYS, "k": _WIDE, "v": _WIDE},
    _rwkv4,
    call=_call_rwkv4,
)

# ---- what is known by a value is taken from its key first


def _of_oja(place: str, *, backward: bool) -> Any:
    """
    Args:
        backward: False where the operation has none.
    """
    arguments = QKV | {"gate": VALUES, "beta": EACH}
    return op(
        place,
        arguments if backward else _constant(arguments),
        recurrences.oja,
        prepare=lambda q, k, v, gate, beta: (
            (q, k, F.normalize(v, dim=-1), F.logsigmoid(gate), beta.sigmoid())
        ),
        rounding=recurrences.oja_pairs,
    )


chunk_gated_oja_rule = _of_oja("ops.gated_oja_rule.chunk_gated_oja_rule", backward=True)
fused_recurrent_gated_oja_rule = _of_oja(
    "ops.gated_oja_rule.fused_recurrent_gated_oja_rule", backward=False
)

# ---- a state that is trained on each chunk


def _ttt(*given: Tensor) -> Tensor:
    """Sun et al., "Learning to (learn at test time)", 2024: a linear model with a bias, and the
    layer norm of what it says, in chunks of 16."""
    q, k, v, w, b, eta = given
    width = q.shape[3]
    state, bias = q.new_zeros(*q.shape[:1], q.shape[2], width, width), 0
    q, k, v, eta = (one.transpose(1, 2) for one in (q * width**-0.5, k, v, eta))
    w, b, outputs = w[:, None], b[:, None], []
    for start in range(0, q.shape[2], 16):
        q_c, k_c, v_c, rate = (one[:, :, start : start + 16] for one in (q, k, v, eta))
        said = k_c @ state + bias
        centred = said - said.mean(-1, keepdim=True)
        root = (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        normal = centred / root
        slope = (w * normal + b - (v_c - k_c)) * w
        along = (slope * normal).mean(-1, keepdim=True) * normal
        step = (slope - slope.mean(-1, keepdim=True) - along) / root
        seen = (rate * (q_c @ k_c.transpose(-2, -1))).tril()
        outputs.append(q_c @ state - seen @ step + bias - rate.expand_as(seen).tril() @ step)
        state = state - (rate[:, :, -1:] * k_c).transpose(-2, -1) @ step
        bias = bias - (rate[:, :, -1:] * step).sum(-2, keepdim=True)
    o = torch.cat(outputs, 2)
    normal = o - o.mean(-1, keepdim=True)
    normal = normal * torch.rsqrt(normal.square().mean(-1, keepdim=True) + 1e-6)
    return (o + normal * w + b).transpose(1, 2)


_NORM = Argument("heads", "keys")


def _of_ttt(place: str) -> Any:
    return op(
        place,
        {"q": KEYS, "k": KEYS, "v": KEYS, "w": _NORM, "b": _NORM}
        | {"eta": Argument("batch", "length", "heads", 1)},
        _ttt,
        prepare=lambda *given: (*given[:5], 0.1 * given[5].sigmoid()),
        sizes={"length": (16, 32, 64), "keys": (16, 32)},
    )


chunk_ttt_linear = _of_ttt("ops.ttt.chunk_ttt_linear")
fused_chunk_ttt_linear = _of_ttt("ops.ttt.fused_chunk_ttt_linear")

# ---- two states: the second scales the keys, or is solved for


def _preconditioned(*given: Tensor) -> tuple[Tensor, Tensor]:
    """A ← exp(log) A + β k², and the keys times 1.5 ** −s, s = r / (1 + |r|), r = log A + 0.2."""
    k, log, beta = given
    state, keys = 0, []
    for t in range(k.shape[1]):
        state = log[:, t, :, None].exp() * state + beta[:, t, :, None] * k[:, t].square()
        r = (state + 1e-6).log() + 0.2
        keys.append(k[:, t] * 1.5 ** (-r / (1 + r.abs())))
    return torch.stack(keys, 1), k


def _precond(delta: Any) -> Any:
    def reference(*given: Tensor) -> Tensor:
        q, k, v, log_a, log, beta_a, beta = given
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        keys, known = _preconditioned(k, log_a, beta_a)
        beta = beta[..., None]
        return delta(q, keys, beta * v, beta * known, log)

    return reference


def _of_precond(place: str, gate: Argument, call: Any, *, backward: bool = True) -> Any:
    arguments = QKV | {"gate_a": EACH, "gate": gate, "beta_a": EACH, "beta": EACH}
    return op(
        place,
        arguments if backward else _constant(arguments),
        _precond(recurrences.delta),
        prepare=lambda q, k, v, gate_a, gate, beta_a, beta: (
            (q, k, v, F.logsigmoid(gate_a), F.logsigmoid(gate), beta_a.sigmoid(), beta.sigmoid())
        ),
        rounding=_precond(recurrences.delta_pairs),
        call=call,
    )


def _by_name(rule: Any, *given: Tensor) -> Tensor:
    q, k, v, log_a, log, beta_a, beta = given
    return rule(q, k, v, g=log, beta=beta, g_atk=log_a, beta_atk=beta_a)[0]


chunk_precond_gated_delta_rule = _of_precond(
    "ops.precond_gated_delta_rule.chunk_precond_gated_delta_rule", EACH, _by_name
)
fused_recurrent_precond_gated_delta_rule = _of_precond(
    "ops.precond_gated_delta_rule.fused_recurrent_precond_gated_delta_rule",
    EACH,
    _by_name,
    backward=False,
)
chunk_precond_kda = _of_precond("ops.precond_kda.chunk_precond_kda", KEYS, _by_name)
fused_recurrent_precond_kda = _of_precond(
    "ops.precond_kda.fused_recurrent_precond_kda", KEYS, _by_name, backward=False
)


def _mesa(*given: Tensor) -> Tensor:
    """von Oswald et al., "MesaNet", 2025: q solved for the keys' products so far."""
    q, k, v, log, beta, more = given
    keys = values = q.new_zeros(*q.shape[:1], *q.shape[2:], q.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        decay, own = log[:, t, :, None, None].exp(), beta[:, t, :, None] * k[:, t]
        keys = decay * keys + recurrences.outer(own, k[:, t])
        values = decay * values + recurrences.outer(own, v[:, t])
        x = recurrences.Solution.apply(keys, more.expand_as(q[:, t]), q[:, t])
        outputs.append(recurrences.read(x, values))
    return torch.stack(outputs, 1)


def _mesa_pairs(*given: Tensor) -> Tensor:
    """As `_mesa`."""
    q, k, v, log, beta, more = given
    one = torch.ones_like(q[..., :1])
    faded, own = recurrences.paired(one, one, log), beta[..., None] * k
    keys, values = (torch.einsum("btsh,bshk,bshv->bthkv", faded, own, to) for to in (k, v))
    right = q.flatten(0, 1)
    x = recurrences.Solution.apply(keys.flatten(0, 1), more.expand_as(right), right)
    return recurrences.read(x, values.flatten(0, 1)).unflatten(0, q.shape[:2])


def _of_mesa(*given: Tensor) -> tuple[Tensor, ...]:
    q, k, v, gate, beta, more = given
    unit = (F.normalize(x, dim=-1) for x in (q, k))
    return *unit, v, F.logsigmoid(gate), beta.sigmoid(), F.softplus(more) + 0.25


_MESA = {"q": KEYS, "k": KEYS, "v": KEYS, "gate": EACH, "beta": EACH}
chunk_mesa_net = op(
    "ops.mesa_net.chunk_mesa_net",
    _MESA | {"more": _NORM},
    _mesa,
    prepare=_of_mesa,
    rounding=_mesa_pairs,
    sizes={"keys": (16, 32), "length": (1, 17, 65)},
    dtypes=("bfloat16", "float16"),  # q and k are made float16
)

# ---- a state for each power of two


def _levels(*given: Tensor) -> Tensor:
    """Guo et al., "Log-linear attention", 2025: a pair of steps has the level of the highest bit in
    which they differ."""
    q, k, v, log, scales = given
    steps = torch.arange(q.shape[1]).tolist()
    level = torch.tensor([[(t ^ s).bit_length() if s <= t else 0 for s in steps] for t in steps])
    chosen = scales[:, torch.arange(len(steps))[:, None], :, level]  # [T, T, B, H]
    return recurrences.mixed(recurrences.paired(q, k, log) * chosen.permute(2, 0, 1, 3), v)


chunk_log_linear_attn = op(
    "ops.log_linear_attn.chunk_log_linear_attn",
    {"q": KEYS, "k": KEYS, "v": VALUES, "gate": EACH}
    | {"scales": Argument("batch", "length", "heads", 8)},
    _levels,
    prepare=lambda q, k, v, gate, scales: (q, k, v, F.logsigmoid(gate), scales),
    sizes={"keys": (64,), "values": (16, 32, 64)},
)
