"""Embeddings of liger-kernel: of tokens, and rotary ones of positions."""

from dataclasses import replace
from typing import Any

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


_one_position = KnownFinding(
    package="liger-kernel",
    releases="==0.8.5",
    code="race",
    case=Case(dims={"batch": 2, "heads": 2, "kv_heads": 2, "length": 1, "width": 2}),
    when=lambda case: case["batch"] > 1 and case["length"] == 1,
    page="docs/findings/liger-rope-one-position.md",
)
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
    known=[_one_position],
)


def _llama4_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Times one, as above."""
    turned = op("Llama4Rope")(q, k, torch.complex(cos.float(), sin.float()))
    return turned[0] * 1, turned[1] * 1


def _llama4_turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, L, heads, D]: neighbours are turned as a complex number is."""
    cos, sin = cos[:, None], sin[:, None]
    real, imaginary = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = (real * cos - imaginary * sin, real * sin + imaginary * cos)
    return torch.stack(turned, -1).flatten(-2)


_HEADS = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "heads": lambda sizes: strategies().integers(2, 4),
    "kv_heads": lambda sizes: strategies().integers(2, 3),
    "length": lambda sizes: strategies().integers(1, 5),
    "half": lambda sizes: strategies().sampled_from([1, 3, 4, 8, 17, 25]),
    "width": lambda sizes: strategies().just(2 * sizes["half"]),
}
_ANGLES = Argument("length", "half", gradient=False)


def _heads_first(x: Tensor) -> Tensor:
    """In memory, of [B, L, heads, D]."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


_LLAMA4: dict[str, Any] = {
    "reference": lambda q, k, cos, sin: (
        _llama4_turned(q, cos, sin),
        _llama4_turned(k, cos, sin),
    ),
    "arguments": {
        "q": Argument("batch", "length", "heads", "width"),
        "k": Argument("batch", "length", "kv_heads", "width"),
        "cos": _ANGLES,
        "sin": _ANGLES,
    },
}
llama4_rope = released(
    PACKAGE,
    _llama4_rope,
    **_LLAMA4,
    sizes=_HEADS | {"length": lambda sizes: strategies().integers(2, 5)},
    overwrites=("q", "k"),
)
llama4_rope_one_position = released(
    PACKAGE,
    lambda q, k, cos, sin: _llama4_rope(_heads_first(q), _heads_first(k), cos, sin),
    **_LLAMA4,
    sizes=_HEADS | {"batch": 2, "length": 1},
    known=[
        replace(
            _one_position,
            case=Case(
                dims={"batch": 2, "half": 1, "heads": 2, "kv_heads": 2, "length": 1, "width": 2}
            ),
        )
    ],
)


def _sections(half: int) -> list[int]:
    """How many of the angles are time's, the height's and the width's."""
    time = half // 4
    return [time, (half - time) // 2, half - time - (half - time) // 2]


def _qwen2vl_mrope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Times one, as above."""
    both = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    turned = op("Qwen2VLMRope")(q, k, *both, _sections(cos.shape[-1]))
    return turned[0] * 1, turned[1] * 1


def _chosen(angles: Tensor) -> Tensor:
    """angles [3, B, L, D / 2] → [B, L, D]: each section's of its own position."""
    parts = angles.split(_sections(angles.shape[-1]), -1)
    chosen = torch.cat([part[i] for i, part in enumerate(parts)], -1)
    return torch.cat((chosen, chosen), -1)


def _qwen2vl_reference(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    turns = _chosen(cos), _chosen(sin)
    return _turned(q, *turns), _turned(k, *turns)


qwen2vl_mrope = released(
    PACKAGE,
    _qwen2vl_mrope,
    reference=_qwen2vl_reference,
    arguments={
        "q": Argument("batch", "heads", "length", "width"),
        "k": Argument("batch", "kv_heads", "length", "width"),
        "cos": Argument(3, "batch", "length", "half", gradient=False),
        "sin": Argument(3, "batch", "length", "half", gradient=False),
    },
    sizes=_HEADS,
    overwrites=("q", "k"),
)
