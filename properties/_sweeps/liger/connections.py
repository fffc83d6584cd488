"""Connections of layers: attention residuals."""

from torch import Tensor

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op
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
