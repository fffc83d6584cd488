"""Attention of liger-kernel."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import strategies
from tpcheck import Argument
from tpcheck.case import FAMILIES


def _multi_token_attention(scores: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Golovneva et al., "Multi-token attention", 2025: a convolution over causal probabilities."""
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    probabilities = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    mixed = F.conv2d(probabilities, weight, bias, padding=weight.shape[-1] // 2)
    return mixed.masked_fill(~causal, 0)


multi_token_attention = released(
    PACKAGE,
    lambda scores, weight, bias: op("MultiTokenAttention")(
        scores, weight, bias, 1, weight.shape[-1] // 2
    ),
    reference=_multi_token_attention,
    arguments={
        "scores": Argument("batch", "heads", "length", "length"),
        "weight": Argument("mixed", "heads", 3, 3),
        "bias": Argument("mixed"),
    },
    sizes={
        "batch": lambda sizes: strategies().integers(1, 2),
        "heads": lambda sizes: strategies().integers(1, 3),
        "length": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17]),
        "mixed": lambda sizes: strategies().integers(1, 3),
    },
)


def _neighbours(
    q: Tensor, k: Tensor, v: Tensor, *, kernel_size: int, dilation: int, scale: float
) -> Tensor:
    """Of q [B, heads, L, D]: those at most kernel_size // 2 steps of `dilation` away."""
    apart = torch.arange(q.shape[2]) - torch.arange(q.shape[2])[:, None]
    near = (apart.abs() <= kernel_size // 2 * dilation) & (apart % dilation == 0)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale == 0 else scale)
    return scores.masked_fill(~near, -torch.inf).softmax(-1) @ v


_HEAD = Argument("batch", "heads", "length", "width")
neighborhood_attention = released(
    PACKAGE,
    lambda q, k, v, *, kernel_size, dilation, scale: op("FusedNeighborhoodAttention")(
        q, k, v, kernel_size, dilation, scale or None
    ),
    reference=_neighbours,
    arguments={"q": _HEAD, "k": _HEAD, "v": _HEAD},
    sizes={
        "batch": lambda sizes: strategies().integers(1, 2),
        "heads": lambda sizes: strategies().integers(1, 3),
        "length": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17, 65]),
        "width": lambda sizes: strategies().sampled_from([1, 5, 16, 17, 65]),
    },
    options={
        "kernel_size": lambda sizes: strategies().sampled_from([1, 3, 7]),
        "dilation": lambda sizes: strategies().integers(1, 3),
        "scale": lambda sizes: strategies().sampled_from([0.0, 0.5]),
    },
    # scores are kept in the dtype: float16 has none of an outlier's square
    families=[family for family in FAMILIES if family != "outlier"],
    large=False,
    dtypes=("bfloat16", "float16"),  # its dots of float32 are of tf32, which is not modelled
)
