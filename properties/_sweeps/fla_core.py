"""Operations of the installed fla-core that run on a CPU: one check each. docs/sweeps.md has what
came of it.

    pip install fla-core einops
    tpcheck verify properties/_sweeps/fla_core.py --examples 25
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.fla import PACKAGE, take
from tpcheck import Argument, Case, KnownFinding

EPS = 1e-5
_ROWS, _WIDTH = Argument("rows", "width"), Argument("width")
_MANY = {"rows": lambda sizes: strategies().sampled_from([1, 2, 3, 5, 33])}
_NARROW = {"width": lambda sizes: strategies().sampled_from([1, 2, 3, 4, 5, 16, 17, 64, 65, 129])}


def strategies() -> Any:
    """Hypothesis's, imported where cases are drawn: ranks read this module, too."""
    from hypothesis import strategies

    return strategies


def _of_rows(place: str, *names: str, reference: Any, options: Any = ()) -> Any:
    """An operation of tensors [rows, width]."""
    return released(
        PACKAGE,
        lambda *given: take(place)(*given, *options),
        reference=reference,
        arguments=dict.fromkeys(names, _ROWS),
        sizes=_MANY,
    )


# ---- activations

sigmoid = _of_rows("modules.activations.sigmoid", "x", reference=torch.sigmoid)
logsigmoid = _of_rows("modules.activations.logsigmoid", "x", reference=F.logsigmoid)
swish = _of_rows("modules.activations.swish", "x", reference=F.silu)
sqrelu = _of_rows("modules.activations.sqrelu", "x", reference=lambda x: x.relu().square())
swiglu = _of_rows(
    "modules.activations.swiglu", "gate", "up", reference=lambda gate, up: F.silu(gate) * up
)

# ---- norms


def rms(x: Tensor, weight: Tensor, eps: float = EPS) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


l2norm = _of_rows(
    "modules.l2norm.l2norm",
    "x",
    reference=lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
)
layer_norm = released(
    PACKAGE,
    lambda x, weight, bias: take("modules.layernorm.layer_norm")(x, weight, bias, eps=EPS),
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
    arguments={"x": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
    sizes=_MANY,
)
rms_norm = released(
    PACKAGE,
    lambda x, weight: take("modules.layernorm.rms_norm")(x, weight, None, eps=EPS),
    reference=rms,
    arguments={"x": _ROWS, "weight": _WIDTH},
    sizes=_MANY,
)
rms_norm_residual = released(
    PACKAGE,
    lambda x, weight, residual: take("modules.layernorm.rms_norm")(
        x, weight, None, residual=residual, eps=EPS, prenorm=True
    ),
    reference=lambda x, weight, residual: (rms(x + residual, weight), x + residual),
    arguments={"x": _ROWS, "weight": _WIDTH, "residual": _ROWS},
    sizes=_MANY,
)
rms_norm_gated = released(
    PACKAGE,
    lambda x, gate, weight: take("modules.fused_norm_gate.rms_norm_gated")(
        x, gate, weight, None, eps=EPS
    ),
    reference=lambda x, gate, weight: rms(x, weight) * F.silu(gate),
    arguments={"x": _ROWS, "gate": _ROWS, "weight": _WIDTH},
    sizes=_MANY,
)
layer_norm_gated = released(
    PACKAGE,
    lambda x, gate, weight, bias: take("modules.fused_norm_gate.layer_norm_gated")(
        x, gate, weight, bias, eps=EPS
    ),
    reference=lambda x, gate, weight, bias: (
        F.layer_norm(x, weight.shape, weight, bias, EPS) * F.silu(gate)
    ),
    arguments={"x": _ROWS, "gate": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
    sizes=_MANY,
)

# ---- sequences

_SEQUENCES = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "length": lambda sizes: strategies().sampled_from([1, 2, 3, 5, 17]),
}


def _shifted(x: Tensor) -> Tensor:
    """x [B, T, D]: the token before less this one, and nothing before the first."""
    return F.pad(x, (0, 0, 1, 0))[:, :-1] - x


token_shift = released(
    PACKAGE,
    lambda x: take("modules.token_shift.token_shift")(x),
    reference=_shifted,
    arguments={"x": Argument("batch", "length", "width")},
    sizes=_SEQUENCES | _NARROW,
)


def _convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [B, T, D], weight [D, W]: each channel alone, of this token and the W − 1 before."""
    width = weight.shape[-1]
    padded = F.pad(x.transpose(1, 2), (width - 1, 0))
    return F.silu(F.conv1d(padded, weight[:, None], bias, groups=x.shape[-1])).transpose(1, 2)


causal_conv1d = released(
    PACKAGE,
    lambda x, weight, bias: take("modules.convolution.causal_conv1d")(
        x, weight, bias, activation="silu"
    )[0],
    reference=_convolved,
    arguments={
        "x": Argument("batch", "length", "width"),
        "weight": Argument("width", "taps"),
        "bias": _WIDTH,
    },
    sizes=_SEQUENCES | _NARROW | {"taps": lambda sizes: strategies().integers(2, 4)},
)


def _turns(length: int, half: int, like: Tensor) -> tuple[Tensor, Tensor]:
    steps = torch.arange(half, dtype=torch.float64)
    positions = torch.arange(1, length + 1, dtype=torch.float64)
    angle = positions[:, None] * 10_000.0 ** (-steps / half)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def _turned(x: Tensor) -> Tensor:
    """x [B, T, H, D]."""
    cos, sin = (turn[:, None] for turn in _turns(x.shape[1], x.shape[3] // 2, x))
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


rotary = released(
    PACKAGE,
    lambda x: take("modules.rotary.rotary_embedding")(x, *_turns(x.shape[1], x.shape[3] // 2, x)),
    reference=_turned,
    arguments={"x": Argument("batch", "length", "heads", "width")},
    sizes=_SEQUENCES
    | {
        "heads": lambda sizes: strategies().integers(1, 3),
        "width": lambda sizes: strategies().sampled_from([2, 4, 16, 34, 64]),
    },
)

# ---- losses

_TOKENS = {"tokens": lambda sizes: strategies().integers(1, 5)}


def _cross_entropy(smoothing: float, square: float) -> Any:
    def reference(logits: Tensor, target: Tensor) -> Tensor:
        losses = F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
        return losses + square * logits.logsumexp(-1).square()

    return released(
        PACKAGE,
        lambda logits, target: take("modules.fused_cross_entropy.cross_entropy_loss")(
            logits, target, label_smoothing=smoothing, lse_square_scale=square
        )[0].to(logits.dtype),
        reference=reference,
        arguments={
            "logits": Argument("tokens", "vocab"),
            "target": Argument("tokens", integers=(0, "vocab")),
        },
        sizes=_TOKENS,
    )


cross_entropy = _cross_entropy(0.0, 0.0)
cross_entropy_all = _cross_entropy(0.1, 1e-2)
_PROJECTED = _TOKENS | {
    "hidden": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17]),
    "vocab": lambda sizes: strategies().sampled_from([2, 5, 16, 17, 33]),
}
fused_linear_cross_entropy = released(
    PACKAGE,
    lambda x, target, weight, bias: take(
        "modules.fused_linear_cross_entropy.fused_linear_cross_entropy_loss"
    )(x, target, weight, bias).to(x.dtype),
    reference=lambda x, target, weight, bias: F.cross_entropy(F.linear(x, weight, bias), target),
    arguments={
        "x": Argument("tokens", "hidden"),
        "target": Argument("tokens", integers=(0, "vocab")),
        "weight": Argument("vocab", "hidden"),
        "bias": Argument("vocab"),
    },
    sizes=_PROJECTED,
    known=[
        KnownFinding(
            package="fla-core",
            releases="==0.6.0",
            code="second-backward",
            case=Case(dims={"tokens": 1, "vocab": 2, "hidden": 1}),
            when=lambda case: True,
            page="docs/findings/fla-second-backward.md",
        )
    ],
    dtypes=("float32", "bfloat16"),  # in float16 gradients may be zero
    large=False,
)

# ---- attention, one step after the other. No gradient of gates: the first one's is zero, since it
# decays an empty state, and the kernels' is a difference of two equal sums

_HEADS = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "length": lambda sizes: strategies().sampled_from([1, 2, 5, 17]),
    "heads": lambda sizes: strategies().integers(1, 2),
    "keys": lambda sizes: strategies().sampled_from([1, 4, 5, 16, 17]),
    "values": lambda sizes: strategies().sampled_from([1, 4, 5, 16, 17]),
}
_QK = Argument("batch", "length", "heads", "keys")
_V = Argument("batch", "length", "heads", "values")
_GATE = Argument("batch", "length", "heads")


def _recurrent(q: Tensor, k: Tensor, v: Tensor, decay: Any, told: Any) -> Tensor:
    """S ← decay · S + kᵀ · told(S, t), o = q S / √K."""
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        state = decay(t) * state
        state = state + k[:, t, :, :, None] * told(state, t)[:, :, None]
        outputs.append((q[:, t, :, :, None] * state).sum(2) * q.shape[3] ** -0.5)
    return torch.stack(outputs, 1)


def _gla(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    log = F.logsigmoid(gate.detach())
    return _recurrent(q, k, v, lambda t: log[:, t, :, :, None].exp(), lambda state, t: v[:, t])


fused_recurrent_gla = released(
    PACKAGE,
    lambda q, k, v, gate: take("ops.gla.fused_recurrent_gla")(q, k, v, F.logsigmoid(gate.detach()))[
        0
    ],
    reference=_gla,
    arguments={"q": _QK, "k": _QK, "v": _V, "gate": _QK},
    sizes=_HEADS,
    large=False,
)
fused_recurrent_simple_gla = released(
    PACKAGE,
    lambda q, k, v, gate: take("ops.simple_gla.fused_recurrent_simple_gla")(
        q, k, v, F.logsigmoid(gate.detach())
    )[0],
    reference=lambda q, k, v, gate: _recurrent(
        q, k, v, lambda t: gate.detach()[:, t, :, None, None].sigmoid(), lambda state, t: v[:, t]
    ),
    arguments={"q": _QK, "k": _QK, "v": _V, "gate": _GATE},
    sizes=_HEADS,
    large=False,
)


def _delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    k = F.normalize(k, dim=-1)

    def told(state: Tensor, t: int) -> Tensor:
        known = (k[:, t, :, :, None] * state).sum(2)
        return beta[:, t, :, None].sigmoid() * (v[:, t] - known)

    return _recurrent(q, k, v, lambda t: 1, told)


fused_recurrent_delta_rule = released(
    PACKAGE,
    lambda q, k, v, beta: take("ops.delta_rule.fused_recurrent_delta_rule")(
        q, F.normalize(k, dim=-1), v, beta.sigmoid()
    )[0],
    reference=_delta,
    arguments={"q": _QK, "k": _QK, "v": _V, "beta": _GATE},
    sizes=_HEADS,
    large=False,
)
