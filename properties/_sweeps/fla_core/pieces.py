"""Pieces of models in the installed fla-core: RWKV-7's mixing, gates, and softmax's relatives."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import ALL_OR_NONE, of_arguments, released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import strategies
from tpcheck import Argument, Case, KnownFinding

_SIZES = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "length": lambda sizes: strategies().sampled_from([1, 2, 5, 17]),
    "heads": lambda sizes: strategies().integers(1, 3),
    "width": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17, 64]),
    "inner": lambda sizes: strategies().sampled_from([1, 5, 16, 17]),
    "rows": lambda sizes: strategies().sampled_from([1, 2, 3, 17]),
}
_X = Argument("batch", "length", "width")
_WIDTH = Argument("width")
_HEADS = Argument("batch", "length", "heads", "width")
_ROWS = Argument("rows", "width", gradient=False)


def _op(arguments: dict[str, Argument], fn: Any, reference: Any, **options: Any) -> Any:
    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments=arguments,
        sizes=of_arguments(_SIZES, arguments),
        large=False,
        **options,
    )


# ---- RWKV-7


def _mixed(x: Tensor, delta: Tensor, *shares: Tensor) -> tuple[Tensor, ...]:
    return tuple(x + delta * share for share in shares)


fused_addcmul_rwkv7 = _op(
    {"x": _X, "delta": _X} | {f"x{name}": _WIDTH for name in "rwkvag"},
    lambda x, delta, *shares: take("ops.rwkv7.fused_addcmul.fused_addcmul_rwkv7")(
        x, delta, *(share[None, None] for share in shares)
    ),
    _mixed,
    memory=("contiguous",),  # others are copied, and the copy is overwritten
    gradients=ALL_OR_NONE,
    known=[
        KnownFinding(
            package="fla-core",
            releases="==0.6.0",
            code="input-overwritten",
            case=Case(dims={"batch": 1, "length": 2, "width": 1}),
            when=lambda case: case["length"] > 1 and case.gradients == "all",
            page="docs/findings/fla-rwkv7-mixing-input.md",
        )
    ],
)
fused_k_rwkv7 = _op(
    {"k": _X, "a": _X, "share": _WIDTH},
    lambda k, a, share: take("ops.rwkv7.fused_k_update.fused_k_rwkv7")(k, a, share),
    lambda k, a, share: k + k * (a - 1) * share,
)


def _corrected(o: Tensor, r: Tensor, k: Tensor, own: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    return ((o + (r * k * own).sum(-1, keepdim=True) * v) * gate).flatten(2)


gate_output_correction = _op(
    {"o": _HEADS, "r": _HEADS, "k": _HEADS, "own": Argument("heads", "width")}
    | {"v": _HEADS, "gate": _HEADS},
    lambda o, r, k, own, v, gate: take("ops.rwkv7.gate_output_correction.gate_output_correction")(
        o.flatten(2), r, k, own, v, gate.flatten(2)
    ),
    _corrected,
)


def _channels(x: Tensor, before: Tensor, share: Tensor, key: Tensor, value: Tensor) -> Tensor:
    shifted = torch.cat((before[:, None], x[:, :-1]), 1)
    return ((x + (shifted - x) * share) @ key).relu().square() @ value


channel_mixing_rwkv7 = _op(
    {"x": _X, "before": Argument("batch", "width"), "share": _WIDTH}
    | {"key": Argument("width", "inner"), "value": Argument("inner", "width")},
    lambda *given: take("ops.rwkv7.channel_mixing.channel_mixing_rwkv7")(*given, inplace=False)[0],
    _channels,
)

# ---- gates

fused_beta_sigmoid = _op(
    {"x": Argument("batch", "length", "heads")},
    lambda x: take("ops.common.gate.fused_beta_sigmoid")(x, 2.0),
    lambda x: 2 * torch.sigmoid(x),
)
fused_kda_gate = _op(
    {"x": _HEADS, "rate": Argument("heads"), "bias": Argument("heads", "width")},
    lambda x, rate, bias: take("ops.kda.gate.fused_kda_gate")(
        x, rate, bias.flatten(), output_dtype=x.dtype
    ),
    lambda x, rate, bias: -rate[:, None].exp() * F.softplus(x + bias),
)
fused_kda_gate_bounded = _op(
    {"x": _HEADS, "rate": Argument("heads"), "bias": Argument("heads", "width")},
    lambda x, rate, bias: take("ops.kda.gate.fused_kda_gate")(
        x, rate, bias.flatten(), lower_bound=-5.0, output_dtype=x.dtype
    ),
    lambda x, rate, bias: -5 * torch.sigmoid(rate[:, None].exp() * (x + bias)),
)
fused_gdn_gate = _op(
    {"x": Argument("batch", "length", "heads"), "rate": Argument("heads")}
    | {"bias": Argument("heads")},
    lambda x, rate, bias: take("ops.gated_delta_rule.gate.fused_gdn_gate")(
        x, rate, bias, output_dtype=x.dtype
    ),
    lambda x, rate, bias: -rate.exp() * F.softplus(x + bias),
)

# ---- rows: forward, and backward as a function of its own

softmax_fwd = _op(
    {"x": _ROWS},
    lambda x: take("ops.utils.softmax_fwd")(x.contiguous(), dtype=x.dtype),
    lambda x: x.softmax(-1),
)
softmax_bwd = _op(
    {"p": _ROWS, "upstream": _ROWS},
    lambda p, upstream: take("ops.utils.softmax_bwd")(
        p.contiguous(), upstream.contiguous(), dtype=p.dtype
    ),
    lambda p, upstream: p * (upstream - (p * upstream).sum(-1, keepdim=True)),
)
logsumexp_fwd = _op(
    {"x": _ROWS},
    lambda x: take("ops.utils.logsumexp_fwd")(x.contiguous(), dtype=x.dtype),
    lambda x: x.logsumexp(-1),
)


def _blocks(x: Tensor) -> Tensor:
    """Strictly lower blocks [B, T, H, 16] of a matrix."""
    steps = torch.arange(x.shape[1])[:, None, None] % x.shape[3]
    return x.where(steps > torch.arange(x.shape[3]), 0) / 4


def _inverses(x: Tensor) -> Tensor:
    """(I + A)⁻¹ of each block."""
    out = []
    for block in _blocks(x).split(x.shape[3], 1):  # [B, C, H, 16]
        rows = torch.eye(x.shape[3], dtype=x.dtype).expand(*block.shape[:1], block.shape[2], -1, -1)
        done = [rows[:, :, 0]]
        for t in range(1, block.shape[1]):
            taken = block[:, t, :, :t, None] * torch.stack(done, 2)
            done.append(rows[:, :, t] - taken.sum(2))
        out.append(torch.stack(done, 1))
    return torch.cat(out, 1)


solve_tril = _op(
    {"x": Argument("batch", "length", "heads", 16, gradient=False)},
    lambda x: take("ops.utils.solve_tril")(_blocks(x), output_dtype=x.dtype),
    _inverses,
)
