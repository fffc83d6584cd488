"""Embeddings of liger-kernel: of tokens, and rotary ones of positions."""

import torch
from torch import Tensor

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import TOKENS, strategies
from tpcheck import Argument, Case, KnownFinding

embedding = released(
    PACKAGE,
    lambda table, index: op("Embedding")(table, index),
    reference=lambda table, index: table[index],
    arguments={
        "table": Argument("vocab", "hidden"),
        "index": Argument("tokens", integers=(0, "vocab")),
    },
    dtypes=("float32", "float16"),  # atomics, as above
    sizes=TOKENS
    | {
        "hidden": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 129]),
        "vocab": lambda sizes: strategies().sampled_from([1, 2, 5, 17]),
    },
)


def _turns(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [1, L, D] as transformers makes them: both halves of the width alike."""
    half = torch.arange(width // 2, dtype=torch.float64)
    positions = torch.arange(1, length + 1, dtype=torch.float64)  # at 0 nothing is turned
    angle = positions[:, None] * 10_000.0 ** (-2 * half / width)
    both = torch.cat((angle, angle), -1)[None]
    return both.cos().to(like.dtype), both.sin().to(like.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, L, D]."""
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


def _rope(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Times one, since its backward writes into the upstream gradients."""
    turned = op("Rope")(q, k, *_turns(q.shape[2], q.shape[3], q))
    return turned[0] * 1, turned[1] * 1


def _rope_reference(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    turns = _turns(q.shape[2], q.shape[3], q)
    return _turned(q, *turns), _turned(k, *turns)


rope = released(
    PACKAGE,
    _rope,
    reference=_rope_reference,
    arguments={
        "q": Argument("batch", "heads", "length", "width"),
        "k": Argument("batch", "kv_heads", "length", "width"),
    },
    sizes={
        "batch": lambda sizes: strategies().integers(1, 2),
        "heads": lambda sizes: strategies().integers(2, 4),
        "kv_heads": lambda sizes: strategies().integers(2, 3),
        "length": lambda sizes: strategies().integers(1, 5),
        "width": lambda sizes: strategies().sampled_from([2, 6, 8, 16, 34]),
    },
    overwrites=("q", "k"),
    known=[
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code="race",
            case=Case(dims={"batch": 2, "heads": 2, "kv_heads": 2, "length": 1, "width": 2}),
            when=lambda case: case["batch"] > 1 and case["length"] == 1,
            page="docs/findings/liger-rope-one-position.md",
        )
    ],
)
