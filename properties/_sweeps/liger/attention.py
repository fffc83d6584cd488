"""Attention of liger-kernel."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import strategies
from tpcheck import Argument


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
