"""Connections of layers in liger-kernel: attention residuals, and manifold-constrained
hyper-connections (mHC)."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op, take
from fixtures.released.liger_references import EPS, TOKENS, rms, strategies
from tpcheck import Argument

_WIDTH = Argument("width")


def _attn_res(blocks: Tensor, query: Tensor, weight: Tensor) -> Tensor:
    """blocks [N, T, D]: softmax over N of query · rms_norm(block), and the sum weighted by it."""
    scores = (rms(blocks, weight) * query).sum(-1)
    return (scores.softmax(0)[..., None] * blocks).sum(0)


attn_res = released(
    PACKAGE,
    lambda blocks, query, weight: op("AttnRes")(blocks, query, weight, EPS),
    reference=_attn_res,
    arguments={"blocks": Argument("blocks", "tokens", "width"), "query": _WIDTH, "weight": _WIDTH},
    sizes=TOKENS | {"blocks": lambda sizes: strategies().integers(1, 9)},
)


# ---- mHC (Xie et al., 2025): a residual stream of HC parts

_STREAM = Argument("tokens", "parts", "width")
_PARTS = TOKENS | {
    "tokens": lambda sizes: strategies().sampled_from([1, 2, 5, 33]),
    "parts": lambda sizes: strategies().sampled_from([1, 2, 4]),
    "width": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 33, 65]),
}
_MIXED = {  # in the order of their names: after parts and width
    "x_mixed": lambda sizes: strategies().just(sizes["parts"] * (sizes["parts"] + 2)),
    "x_flat": lambda sizes: strategies().just(sizes["parts"] * sizes["width"]),
}
_LEARNED = {
    "phi": Argument("x_flat", "x_mixed"),
    "bias": Argument("x_mixed"),
    **dict.fromkeys(("pre", "post", "res"), Argument()),
}
_WEIGHTS = Argument("tokens", "parts")
_WRITTEN = {
    "out": Argument("tokens", "width"),
    "post": _WEIGHTS,
    "res": Argument("tokens", "parts", "parts"),
}
_ROUNDS = 4


def _read(x: Tensor, weights: Tensor) -> Tensor:
    """x [N, HC, C], weights [N, HC] → [N, C]."""
    return (x * weights[..., None]).sum(-2)


def _written(x: Tensor, out: Tensor, post: Tensor, res: Tensor) -> Tensor:
    """The mixed stream, with a layer's output in each of its parts."""
    return res @ x + post[..., None] * out[:, None]


def _sinkhorn(logits: Tensor) -> Tensor:
    """Rows and columns of [N, HC, HC] normalised in turn."""
    mixing = logits.softmax(-1) + EPS
    mixing = mixing / (mixing.sum(-2, keepdim=True) + EPS)
    for _ in range(_ROUNDS - 1):
        mixing = mixing / (mixing.sum(-1, keepdim=True) + EPS)
        mixing = mixing / (mixing.sum(-2, keepdim=True) + EPS)
    return mixing


def _coefficients(
    x: Tensor, phi: Tensor, bias: Tensor, pre: Tensor, post: Tensor, res: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """x [N, HC, C], phi [HC · C, HC · (HC + 2)]."""
    parts, flat = x.shape[1], x.flatten(1)
    mix = flat @ phi * torch.rsqrt(flat.square().mean(-1, keepdim=True) + EPS)
    sizes = [parts, parts, parts * parts]
    mixes, biases = mix.split(sizes, -1), bias.split(sizes)
    logits = (mixes[2] * res + biases[2]).unflatten(-1, (parts, parts))
    return (
        torch.sigmoid(mixes[0] * pre + biases[0]),
        2 * torch.sigmoid(mixes[1] * post + biases[1]),
        _sinkhorn(logits),
    )


mhc_coefficients = released(
    PACKAGE,
    lambda x, phi, bias, pre, post, res: op("MHCCoeffs")(
        x, phi, bias, pre, post, res, False, _ROUNDS, EPS, 0.0, EPS, 2.0
    ),
    reference=_coefficients,
    arguments={"x": _STREAM} | _LEARNED,
    sizes=_PARTS | _MIXED,
    dtypes=("bfloat16", "float16"),  # it refuses float32, or takes tf32, which is not modelled
)
mhc_pre = released(
    PACKAGE,
    lambda x, weights: op("MHCPre")(x, weights),
    reference=_read,
    arguments={"x": _STREAM, "weights": _WEIGHTS},
    sizes=_PARTS,
)
mhc_post_res = released(
    PACKAGE,
    lambda x, out, post, res: op("MHCPostRes")(x, out, post, res),
    reference=_written,
    arguments={"x": _STREAM} | _WRITTEN,
    sizes=_PARTS,
)


def _forward(
    x: Tensor, weight: Tensor, phi: Tensor, bias: Tensor, pre: Tensor, post: Tensor, res: Tensor
) -> Tensor:
    """The stream around a layer, x Wᵀ."""
    reading, writing, mixing = _coefficients(x, phi, bias, pre, post, res)
    return _written(x, F.linear(_read(x, reading), weight), writing, mixing)


mhc_apply = released(
    PACKAGE,
    lambda x, pre, *given: take("transformers.functional.liger_mhc_apply")(
        x, given[0], pre, *given[1:], return_x_in=True
    ),
    reference=lambda x, pre, *given: (_written(x, *given), _read(x, pre)),
    arguments={"x": _STREAM, "pre": _WEIGHTS} | _WRITTEN,
    sizes=_PARTS,
)
mhc_forward = released(
    PACKAGE,
    lambda x, weight, *given: take("transformers.functional.liger_mhc_forward")(
        x, partial(F.linear, weight=weight), *given, tmax=_ROUNDS, rms_eps=EPS, sinkhorn_eps=EPS
    ),
    reference=_forward,
    arguments={"x": _STREAM, "weight": Argument("width", "width")} | _LEARNED,
    sizes=_PARTS | _MIXED,
    dtypes=("bfloat16", "float16"),  # as `mhc_coefficients`
)
