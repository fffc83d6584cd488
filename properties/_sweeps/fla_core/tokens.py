"""Operations along a sequence of the installed fla-core: shifts, convolutions, rotary embedding,
sums and means, and packing.
"""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import strategies
from tpcheck import Argument

_WIDTH = Argument("width")
_NARROW = {"width": lambda sizes: strategies().sampled_from([1, 2, 3, 4, 5, 16, 17, 64, 65, 129])}
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

# ---- sums and means

_LONG = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "length": lambda sizes: strategies().sampled_from([1, 15, 16, 17, 65]),
    "heads": lambda sizes: strategies().integers(1, 3),
    "width": lambda sizes: strategies().sampled_from([1, 5, 16, 17]),
}
_SCALARS = Argument("batch", "length", "heads", gradient=False)
_VECTORS = Argument("batch", "length", "heads", "width", gradient=False)


def _by_chunk(x: Tensor) -> Tensor:
    return torch.cat([part.cumsum(1) for part in x.split(16, 1)], 1)


def _sum(place: str, x: Argument, reference: Any, *options: Any, **named: Any) -> Any:
    return released(
        PACKAGE,
        lambda x: take(place)(x, *options, output_dtype=x.dtype, **named),
        reference=reference,
        arguments={"x": x},
        sizes={name: _LONG[name] for name in sorted(x.names)},
    )


chunk_local_cumsum_scalar = _sum("ops.utils.chunk_local_cumsum", _SCALARS, _by_chunk, 16)
chunk_local_cumsum_vector = _sum("ops.utils.chunk_local_cumsum", _VECTORS, _by_chunk, 16)
chunk_global_cumsum_scalar = _sum("ops.utils.chunk_global_cumsum", _SCALARS, lambda x: x.cumsum(1))
chunk_global_cumsum_vector = _sum("ops.utils.chunk_global_cumsum", _VECTORS, lambda x: x.cumsum(1))
chunk_global_cumsum_reverse = _sum(
    "ops.utils.chunk_global_cumsum", _VECTORS, lambda x: x.flip(1).cumsum(1).flip(1), reverse=True
)
mean_pooling = released(
    PACKAGE,
    lambda x: take("ops.utils.mean_pooling")(x, 16),
    reference=lambda x: torch.stack([part.mean(1) for part in x.split(16, 1)], 1),
    arguments={"x": Argument("batch", "length", "heads", "width")},
    sizes=_LONG,
)

# ---- sequences of several lengths, one after the other

_ENDS = (0, 3, 4, 9)
_WHERE = [
    (row, 5 - (end - start) + step, start + step)
    for row, (start, end) in enumerate(itertools.pairwise(_ENDS))
    for step in range(end - start)
]


def _ends() -> Tensor:
    return torch.tensor(_ENDS)


def _packed(x: Tensor) -> Tensor:
    return torch.stack([x[row, step] for row, step, _ in _WHERE])


def _unpacked(x: Tensor) -> Tensor:
    rows = x.new_zeros(3, 5, x.shape[1])
    row, step, place = (torch.tensor(one) for one in zip(*_WHERE, strict=True))
    return rows.index_put((row, step), x[place])


pack_sequence = released(
    PACKAGE,
    lambda x: take("ops.utils.pack_sequence")(x, _ends()),
    reference=_packed,
    arguments={"x": Argument(3, 5, "width")},
    sizes=_NARROW,
)
unpack_sequence = released(
    PACKAGE,
    lambda x: take("ops.utils.unpack_sequence")(x, _ends()),
    reference=_unpacked,
    arguments={"x": Argument(9, "width")},
    sizes=_NARROW,
)
