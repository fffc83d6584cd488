"""Softmax attention and its relatives of the installed fla-core, two query heads to each of keys
where an operation allows it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released import recurrences
from fixtures.released.check import ALL_OR_NONE
from fixtures.released.sequences import EACH, KEYS, VALUES, op
from tpcheck import Argument, Case, KnownFinding

_QUERIES = Argument("batch", "length", "heads", 2, "keys")
_OF_QUERIES = Argument("batch", "length", "heads", 2)
_GROUPED = {"q": _QUERIES, "k": KEYS, "v": VALUES}


def _flat(q: Tensor) -> Tensor:
    return q.flatten(2, 3)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """x [B, T, H, D] as [B, heads, T, D]."""
    return x.repeat_interleave(heads // x.shape[2], 2).transpose(1, 2)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """[B, H, T, T], over √K."""
    return _by_head(q, q.shape[2]) @ _by_head(k, q.shape[2]).transpose(2, 3) * q.shape[3] ** -0.5


def _causal(scores: Tensor, window: int | None = None) -> Tensor:
    steps = torch.arange(scores.shape[-1])
    behind = steps[:, None] - steps
    hidden = (behind < 0) | (behind >= (window or len(steps)))
    return scores.masked_fill(hidden, -torch.inf)


def _gates(log: Tensor) -> Tensor:
    """log [B, T, H]: its sum between two steps, [B, H, T, T]."""
    total = log.cumsum(1).transpose(1, 2)
    return total[..., None] - total[:, :, None]


def _mixed(weights: Tensor, v: Tensor) -> Tensor:
    return (weights @ _by_head(v, weights.shape[1])).transpose(1, 2)


def _attn(q: Tensor, k: Tensor, v: Tensor, log: Tensor | None = None) -> Tensor:
    scores = _scores(q, k)
    if log is not None:
        scores = scores + _gates(log)
    return _mixed(_causal(scores).softmax(-1), v)


parallel_attn = op(
    "ops.attn.parallel_attn", _GROUPED, _attn, prepare=lambda q, k, v: (_flat(q), k, v)
)
parallel_attn_window = op(
    "ops.attn.parallel_attn",
    _GROUPED,
    lambda q, k, v: _mixed(_causal(_scores(q, k), 4).softmax(-1), v),
    prepare=lambda q, k, v: (_flat(q), k, v),
    window_size=4,
)


def _sinking(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    scores = _causal(_scores(q, k))
    more = sink[None, :, None, None].expand(*scores.shape[:3], 1)
    return _mixed(torch.cat((scores, more), -1).softmax(-1)[..., :-1], v)


parallel_attn_sink = op(
    "ops.attn.parallel_attn",
    _GROUPED | {"sink": Argument("heads", 2)},
    _sinking,
    prepare=lambda q, k, v, sink: (_flat(q), k, v, sink.flatten()),
    call=lambda attn, q, k, v, sink: attn(q, k, v, sink_bias=sink),
)
parallel_forgetting_attn = op(
    "ops.forgetting_attn.parallel_forgetting_attn",
    _GROUPED | {"gate": _OF_QUERIES},
    _attn,
    prepare=lambda q, k, v, gate: (_flat(q), k, v, F.logsigmoid(gate).flatten(2)),
)


def _parallax(q: Tensor, r: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ p v (1 + Σ p s) − Σ p s v, where s = r k."""
    weights, other = _causal(_scores(q, k)).softmax(-1), _scores(r, k) * r.shape[3] ** 0.5
    each = (weights * other).tril()
    return _mixed(weights * (1 + each.sum(-1, keepdim=True)) - each, v)


parallel_parallax = op(
    "ops.parallax.parallel_parallax",
    {"q": _QUERIES, "r": _QUERIES, "k": KEYS, "v": KEYS},
    _parallax,
    prepare=lambda q, r, k, v: (_flat(q), _flat(r), k, v),
    dtypes=("bfloat16", "float16"),  # it refuses float32
)


def _stickbreaking(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Tan et al., "Scaling stick-breaking attention", 2024, without the query's own position."""
    scores = _scores(q, k)
    visible = torch.ones_like(scores, dtype=torch.bool).tril(-1)
    left = F.logsigmoid(-scores).masked_fill(~visible, 0)
    later = left.flip(-1).cumsum(-1).flip(-1) - left
    weights = (F.logsigmoid(scores) + later).masked_fill(~visible, -torch.inf).exp()
    return _mixed(weights, v), left.sum(-1).exp().transpose(1, 2)


parallel_stickbreaking_attn = op(
    "ops.stickbreaking_attn.parallel_stickbreaking_attn",
    _GROUPED,
    _stickbreaking,
    prepare=lambda q, k, v: (_flat(q), k, v),
    call=lambda attn, *given: attn(*given),
)


parallel_wall_attn = op(
    "ops.wall_attn.parallel_wall_attn",
    _GROUPED | {"gate": _QUERIES},
    recurrences.wall,
    prepare=lambda q, k, v, gate: (_flat(q), k, v, F.logsigmoid(_flat(gate))),
    # of others, gates may be stronger than the kernel takes: `parallel_wall_attn_decay`
    families=("normal", "equal", "zeros", "one-hot"),
)
_DECAYING = {"batch": 1, "heads": 1, "length": 2, "keys": 16, "values": 16}
parallel_wall_attn_decay = op(
    "ops.wall_attn.parallel_wall_attn",
    _GROUPED,
    recurrences.wall,
    prepare=lambda q, k, v: (_flat(q), k, v, torch.full_like(_flat(q), 0.5).log() * 120),
    sizes={name: (size,) for name, size in _DECAYING.items()},
    dtypes=("float32", "bfloat16"),
    families=("normal",),
    known=[
        KnownFinding(
            package="fla-core",
            releases="==0.6.0",
            code="unclassified",
            case=Case(dims=_DECAYING, dtype="float32"),
            when=lambda case: True,
            page="docs/findings/fla-wall-attention-decay.md",
        )
    ],
)
_WALLS = {"batch": 1, "heads": 1, "length": 64, "keys": 16, "values": 16}
parallel_wall_attn_float16 = op(
    "ops.wall_attn.parallel_wall_attn",
    _GROUPED,
    recurrences.wall,
    prepare=lambda q, k, v: (_flat(q), k, v, torch.full_like(_flat(q), 0.5).log()),
    sizes={name: (size,) for name, size in _WALLS.items()},
    dtypes=("float16",),
    families=("normal",),
    gradients=ALL_OR_NONE,
    known=[
        KnownFinding(
            package="fla-core",
            releases="==0.6.0",
            code="unwritten-memory",  # NaN
            case=Case(dims=_WALLS, dtype="float16"),
            when=lambda case: case.dtype == "float16" and case.gradients == "all",
            page="docs/findings/fla-wall-attention-float16.md",
        )
    ],
)


def _path(*given: Tensor) -> Tensor:
    """Yang et al., "PaTH attention", 2025: a key goes through I − β w wᵀ of each later step."""
    q, k, v, w, beta, log = given
    heads = q.shape[2]
    k, w, beta = (one.repeat_interleave(heads // k.shape[2], 2) for one in (k, w, beta[..., None]))
    keys, scores = k[:, :0], []
    for t in range(q.shape[1]):
        along = (keys * w[:, t : t + 1]).sum(-1, keepdim=True)
        keys = keys - along * (beta * w)[:, t : t + 1]
        keys = torch.cat((keys, k[:, t : t + 1]), 1)
        row = (q[:, t : t + 1] * keys).sum(-1)  # [B, t + 1, H]
        scores.append(F.pad(row, (0, 0, 0, q.shape[1] - t - 1)))
    both = torch.stack(scores, 1).permute(0, 3, 1, 2) + _gates(log)
    return _mixed(_causal(both * q.shape[3] ** -0.5).softmax(-1).to(v.dtype), v)


def _direct(*drawn: Tensor) -> tuple[Tensor, ...]:
    """w, β and the gate are float32: that is asserted."""
    q, k, v, w, beta, gate = drawn
    wide = [F.normalize(w, dim=-1), beta.sigmoid(), F.logsigmoid(gate).flatten(2)]
    if q.dtype.itemsize < 4:
        wide = [one.float() for one in wide]
    return _flat(q), k, v, *wide


parallel_path_attn = op(
    "ops.path_attn.parallel_path_attn",
    _GROUPED | {"w": KEYS, "beta": EACH, "gate": _OF_QUERIES},
    _path,
    prepare=_direct,
    sizes={"keys": (16, 32), "values": (16, 32)},
    known=[
        KnownFinding(
            package="fla-core",
            releases="==0.6.0",
            code="out-of-bounds",
            case=Case(dims={"batch": 1, "heads": 1, "length": 1, "keys": 32, "values": 16}),
            when=lambda case: case["keys"] > case["values"],
            page="docs/findings/fla-path-attention-values.md",
        )
    ],
)

_BLOCK = 16


def _blocks(q: Tensor, k: Tensor) -> Tensor:
    """Every block of keys, for every query: [B, T, H, blocks]."""
    count = -(-q.shape[1] // _BLOCK)
    return torch.arange(count).expand(*q.shape[:2], k.shape[2], count).contiguous()


def _nsa(q: Tensor, k: Tensor, v: Tensor, selected: Tensor, compressed: Tensor) -> Tensor:
    """Yuan et al., "Native sparse attention", 2025, with every block selected: causal attention,
    and attention to the means of those blocks that are complete."""
    starts = torch.arange(0, k.shape[1], _BLOCK)
    means = [
        torch.stack([x[:, s : s + _BLOCK].mean(1) for s in starts.tolist()], 1) for x in (k, v)
    ]
    steps = torch.arange(q.shape[1])
    complete = steps[:, None] >= starts + _BLOCK - 1
    scores = _scores(q, means[0]).masked_fill(~complete, -torch.inf)
    weights = scores.softmax(-1).where(complete.any(-1, keepdim=True), 0)
    return _attn(q, k, v) * selected[..., None] + _mixed(weights, means[1]) * compressed[..., None]


def _call_nsa(nsa: Any, q: Tensor, k: Tensor, v: Tensor, slc: Tensor, cmp: Tensor) -> Tensor:
    blocks = _blocks(q, k)
    return nsa(
        q, k, v, cmp, slc, block_indices=blocks, block_counts=blocks.shape[3], block_size=_BLOCK
    )


_MANY = Argument("batch", "length", "heads", 16)
parallel_nsa = op(
    "ops.nsa.parallel_nsa",
    {"q": Argument("batch", "length", "heads", 16, "keys"), "k": KEYS, "v": VALUES}
    | {"selected": _MANY, "compressed": _MANY},
    _nsa,
    prepare=lambda q, k, v, slc, cmp: (
        (_flat(q), k, v, slc.sigmoid().flatten(2), cmp.sigmoid().flatten(2))
    ),
    call=_call_nsa,
    sizes={"length": (1, 17, 64)},  # backward takes a number of blocks that is a power of two
)


def _decoded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q * k.repeat_interleave(2, 2)).sum(-1, keepdim=True) * q.shape[3] ** -0.5
    return (scores.softmax(1) * v.repeat_interleave(2, 2)).sum(1, keepdim=True)


attn_decoding_one_step = op(
    "ops.attn.decoding.attn_decoding_one_step",
    {
        "q": Argument(1, 1, "heads", 2, "keys", gradient=False),
        "k": Argument(1, "length", "heads", "keys", gradient=False),
        "v": Argument(1, "length", "heads", "values", gradient=False),
    },
    _decoded,
    prepare=lambda q, k, v: (_flat(q), k, v),
    call=lambda decode, q, k, v: decode(
        q, k, v, cu_seqlens=torch.tensor([0, k.shape[1]], dtype=torch.int32)
    ),
)
