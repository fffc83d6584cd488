"""Kernels of the installed unsloth that run on a CPU: one check each, and one for each option that
takes another path. docs/sweeps.md has what came of it.

    pip install --no-deps unsloth unsloth_zoo
    tpcheck verify properties/_sweeps/unsloth --examples 25
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.sequences import strategies
from fixtures.released.unsloth import PACKAGE, take
from tpcheck import Argument

EPS = 1e-5
_ROWS, _WIDTH = Argument("rows", "width"), Argument("width")
_SOME = {"rows": lambda sizes: strategies().sampled_from([1, 2, 3, 5, 33])}

# ---- norms


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


rms_layernorm = released(
    PACKAGE,
    lambda x, weight: take("rms_layernorm.Fast_RMS_Layernorm").apply(x, weight, EPS, False),
    reference=rms,
    arguments={"x": _ROWS, "weight": _WIDTH},
    sizes=_SOME,
)
rms_layernorm_gemma = released(
    PACKAGE,
    lambda x, weight: take("rms_layernorm.Fast_RMS_Layernorm").apply(x, weight, EPS, True),
    reference=lambda x, weight: rms(x, 1 + weight),
    arguments={"x": _ROWS, "weight": _WIDTH},
    sizes=_SOME,
)
layernorm = released(
    PACKAGE,
    lambda x, weight, bias: take("layernorm.Fast_Layernorm").apply(x, weight, bias, EPS),
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
    arguments={"x": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
    sizes=_SOME,
)
fused_add_rms_layernorm = released(
    PACKAGE,
    lambda x, residual, weight: (
        take("fused_add_rms_layernorm.fast_add_rms_layernorm_inference")(x, residual, weight, EPS),
        residual,
    ),
    reference=lambda x, residual, weight: (rms(x + residual, weight), x + residual),
    arguments={
        "x": Argument("rows", "width", gradient=False),
        "residual": Argument("rows", "width", gradient=False),
        "weight": Argument("width", gradient=False),
    },
    sizes=_SOME,
    overwrites=("x", "residual"),
    memory=("contiguous",),
)

# ---- activations: kernels of LoRA's own backward, over contiguous tensors

_CUBE = Argument(1, "rows", "width", gradient=False)
_FLAT = Argument("rows", "width", gradient=False)


def _forward(place: str, act: Any) -> Any:
    return released(
        PACKAGE,
        lambda gate, up: take(place)(gate, up),
        reference=lambda gate, up: act(gate) * up,
        arguments={"gate": _CUBE, "up": _CUBE},
        sizes=_SOME,
        memory=("contiguous",),
    )


def _backward(place: str, act: Any) -> Any:
    """(upstream, gate, up) → act(gate)·up, and the gradients of up and of gate."""

    def reference(upstream: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaf = gate.detach().requires_grad_()
            (slope,) = torch.autograd.grad(act(leaf).sum(), leaf)
        return act(gate) * up, upstream * act(gate), upstream * up * slope

    return released(
        PACKAGE,
        lambda upstream, gate, up: take(place)(upstream, gate, up),
        reference=reference,
        arguments={"upstream": _FLAT, "gate": _FLAT, "up": _FLAT},
        sizes=_SOME,
        overwrites=("upstream", "gate", "up"),
        memory=("contiguous",),
    )


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


swiglu = _forward("swiglu.swiglu_fg_kernel", F.silu)
swiglu_backward = _backward("swiglu.swiglu_DWf_DW_dfg_kernel", F.silu)
geglu_exact = _forward("geglu.geglu_exact_forward_kernel", F.gelu)
geglu_exact_backward = _backward("geglu.geglu_exact_backward_kernel", F.gelu)
geglu_approx = _forward("geglu.geglu_approx_forward_kernel", _gelu_tanh)
geglu_approx_backward = _backward("geglu.geglu_approx_backward_kernel", _gelu_tanh)

# ---- losses

IGNORED = -100


def _every_other(target: Tensor) -> Tensor:
    """The targets, with those of odd tokens ignored."""
    return target.where(torch.arange(len(target)) % 2 == 0, IGNORED)


def _cross_entropy(softcap: float, scale: float) -> Any:
    def reference(logits: Tensor, target: Tensor) -> Tensor:
        logits = logits * scale if scale else logits
        logits = softcap * torch.tanh(logits / softcap) if softcap else logits
        return F.cross_entropy(logits, _every_other(target), reduction="none")

    return released(
        PACKAGE,
        lambda logits, target: take("cross_entropy_loss.Fast_CrossEntropyLoss").apply(
            logits, _every_other(target), softcap, scale
        ),
        reference=reference,
        arguments={
            "logits": Argument("tokens", "vocab"),
            "target": Argument("tokens", integers=(0, "vocab")),
        },
        sizes={"tokens": lambda sizes: strategies().integers(1, 5)},
    )


cross_entropy = _cross_entropy(0, 0)
cross_entropy_softcap = _cross_entropy(30.0, 0)
cross_entropy_scaled = _cross_entropy(0, 0.25)

# ---- positions

_HEADS = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "length": lambda sizes: strategies().sampled_from([1, 2, 5]),
    "heads": lambda sizes: strategies().integers(1, 3),
    "more": lambda sizes: strategies().integers(1, 5),
    "width": lambda sizes: strategies().sampled_from([2, 4, 16, 34, 64]),
}
_HEAD = Argument("batch", "length", "heads", "width")


def _turns(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    half = torch.arange(width // 2, dtype=torch.float64)
    positions = torch.arange(1, length + 1, dtype=torch.float64)  # at 0 nothing is turned
    angle = positions[:, None] * 10_000.0 ** (-2 * half / width)
    both = torch.cat((angle, angle), -1)
    return both.cos().to(like.dtype), both.sin().to(like.dtype)


def _turned(x: Tensor) -> Tensor:
    """x [B, T, H, D]."""
    cos, sin = (turn[:, None] for turn in _turns(x.shape[1], x.shape[3], x))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


rope = released(
    PACKAGE,
    lambda q: take("rope_embedding.Fast_RoPE_Embedding").apply(
        q, *_turns(q.shape[1], q.shape[3], q)
    ),
    reference=_turned,
    arguments={"q": _HEAD},
    sizes={name: _HEADS[name] for name in ("batch", "length", "heads", "width")},
    overwrites=("q",),
)


def _rope_qk(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """q, k [B, T, H, D]; the function takes [B, H, T, D]."""
    cos, sin = _turns(q.shape[1], q.shape[3], q)
    function = take("rope_embedding.Fast_RoPE_Embedding_QK")
    turned = function.apply(q.transpose(1, 2), k.transpose(1, 2), cos, sin, None)
    return tuple(one.transpose(1, 2) for one in turned)


rope_qk = released(
    PACKAGE,
    _rope_qk,
    reference=lambda q, k: (_turned(q), _turned(k)),
    arguments={"q": _HEAD, "k": Argument("batch", "length", "more", "width")},
    sizes=_HEADS,
    overwrites=("q", "k"),
)


def _qk_norm_rope(q: Tensor, k: Tensor, of_q: Tensor, of_k: Tensor) -> tuple[Tensor, ...]:
    turns = _turns(q.shape[1], q.shape[3], q)
    given = (q, k, of_q, of_k, *turns, torch.zeros(1, dtype=torch.int32))
    return take("qk_norm_rope.Fast_QK_Norm_RoPE").apply(*given, EPS, EPS, False)


qk_norm_rope = released(
    PACKAGE,
    _qk_norm_rope,
    reference=lambda q, k, of_q, of_k: (_turned(rms(q, of_q)), _turned(rms(k, of_k))),
    arguments={
        "q": _HEAD,
        "k": Argument("batch", "length", "more", "width"),
        "of_q": Argument("width", gradient=False),  # frozen: it has no gradient of them
        "of_k": Argument("width", gradient=False),
    },
    sizes=_HEADS | {"width": lambda sizes: strategies().sampled_from([2, 4, 16, 64])},
)
