"""LoRA of the installed unsloth: y = x Wᵀ + s (x Aᵀ) Bᵀ, in plain products of contiguous tensors,
and the MLP of three of them. W takes no gradient.
"""

from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.sequences import strategies
from fixtures.released.unsloth import PACKAGE, take
from tpcheck import Argument, Case, KnownFinding

_RANKS = {
    "batch": lambda sizes: strategies().integers(1, 2),
    "length": lambda sizes: strategies().sampled_from([1, 2, 5]),
    "width": lambda sizes: strategies().sampled_from([1, 4, 16, 17]),
    "out": lambda sizes: strategies().sampled_from([1, 4, 16, 17]),
    "rank": lambda sizes: strategies().sampled_from([1, 2, 4]),
}
_X = Argument("batch", "length", "width")
_ADAPTED = {
    "w": Argument("out", "width", gradient=False),
    "a": Argument("rank", "width"),
    "b": Argument("out", "rank"),
}


def _adapted(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w) + 0.5 * F.linear(F.linear(x, a), b)


lora = released(
    PACKAGE,
    lambda x, w, a, b: take("fast_lora.LoRA_W").apply(x, w, None, a, b, 0.5),
    reference=_adapted,
    arguments={"x": _X} | _ADAPTED,
    sizes=_RANKS,
    memory=("contiguous",),  # `x.view` raises else
    large=False,
)


def _lora_mlp(x: Tensor, *given: Tensor) -> Tensor:
    parts = [given[i : i + 3] for i in (0, 3, 6)]
    flat = [one for w, a, b in parts for one in (w, None, a, b, 0.5)]
    return take("fast_lora.LoRA_MLP").apply(
        x,
        *flat,
        take("swiglu.swiglu_fg_kernel"),
        take("swiglu.swiglu_DWf_DW_dfg_kernel"),
        False,
    )


def _lora_mlp_reference(x: Tensor, *given: Tensor) -> Tensor:
    gate, up, down = (given[i : i + 3] for i in (0, 3, 6))
    return _adapted(F.silu(_adapted(x, *gate)) * _adapted(x, *up), *down)


_DOWN = {
    "down_w": Argument("width", "out", gradient=False),
    "down_a": Argument("rank", "out"),
    "down_b": Argument("width", "rank"),
}
lora_mlp = released(
    PACKAGE,
    _lora_mlp,
    reference=_lora_mlp_reference,
    arguments={"x": _X}
    | {f"gate_{name}": a for name, a in _ADAPTED.items()}
    | {f"up_{name}": a for name, a in _ADAPTED.items()}
    | _DOWN,
    sizes=_RANKS,
    memory=("contiguous",),
    families=("normal",),  # others may be the same in both backwards
    known=[
        KnownFinding(
            package="unsloth",
            releases="==2026.10.9",
            code="second-backward",
            case=Case(dims=dict.fromkeys(_RANKS, 1)),
            when=lambda case: True,
            page="docs/findings/unsloth-lora-second-backward.md",
        )
    ],
    large=False,
)
