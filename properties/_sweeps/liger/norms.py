"""Norms of liger-kernel, and DyT."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import EPS, rms, strategies
from tpcheck import Argument, Case, KnownFinding
from tpcheck.case import FAMILIES

_ROWS, _WIDTH = Argument("rows", "width"), Argument("width")


def _rms_norm(casting: str, *, offset: float = 0.0, in_place: bool = False) -> Any:
    return lambda x, weight: op("RMSNorm")(x, weight, EPS, offset, casting, in_place)


_RMS: dict[str, Any] = {"reference": rms, "arguments": {"x": _ROWS, "weight": _WIDTH}}
rms_norm_llama = released(PACKAGE, _rms_norm("llama"), **_RMS)
rms_norm_none = released(PACKAGE, _rms_norm("none"), **_RMS)
rms_norm_gemma = released(
    PACKAGE,
    _rms_norm("gemma", offset=1.0),
    reference=lambda x, weight: rms(x, 1 + weight),
    arguments=_RMS["arguments"],
)
layer_norm = released(
    PACKAGE,
    lambda x, weight, bias: op("LayerNorm")(x, weight, bias, EPS),
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
    arguments={"x": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
)


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [N, groups, channels of one, length]."""
    channels, groups = x.shape[1] * x.shape[2], x.shape[1]
    flat = x.flatten(1, 2)
    return op("GroupNorm")(flat, weight.flatten(), bias.flatten(), channels, groups, EPS)


def _group_norm_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean((2, 3), keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean((2, 3), keepdim=True) + EPS)
    return (normal * weight[..., None] + bias[..., None]).flatten(1, 2)


_CHANNELS = Argument("groups", "channels")


def _grouped(shift: float, known: Any = (), **options: Any) -> Any:
    return released(
        PACKAGE,
        lambda x, weight, bias: _group_norm(x + shift, weight, bias),
        reference=lambda x, weight, bias: _group_norm_reference(x + shift, weight, bias),
        arguments={
            "x": Argument("batch", "groups", "channels", "length"),
            "weight": _CHANNELS,
            "bias": _CHANNELS,
        },
        sizes={
            "batch": lambda sizes: strategies().integers(1, 3),
            "groups": lambda sizes: strategies().integers(1, 3),
            "channels": lambda sizes: strategies().integers(1, 5),
            "length": lambda sizes: strategies().sampled_from([32, 33, 64, 67]),
        },
        known=known,
        **options,
    )


# its backward adds up with atomics, of which the interpreter has none of bfloat16
group_norm = _grouped(
    0.0,
    dtypes=("float32", "float16"),
    # rows of the others are far from zero, measured in their deviations
    families=tuple(f for f in FAMILIES if f not in ("shifted", "equal")),
)
group_norm_far = _grouped(
    4000.0,
    [
        KnownFinding(
            package="liger-kernel",
            releases="==0.8.5",
            code=(
                "unclassified",
                "upstream-ignored",
                "unwritten-memory",
            ),  # by size: digits, then NaN
            case=Case(dims={"batch": 1, "groups": 1, "channels": 1, "length": 32}),
            when=lambda case: True,
            page="docs/findings/liger-group-norm-variance.md",
        )
    ],
    families=("normal",),
    dtypes=("float32",),
    large=False,
)


def _poly_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Zhuo et al., "Polynomial composition activations", 2024: of x³, x² and x."""
    powers = (x * x * x, x * x, x)
    normal = [p * torch.rsqrt(p.square().mean(-1, keepdim=True) + EPS) for p in powers]
    return weight[0] * normal[0] + weight[1] * normal[1] + weight[2] * normal[2] + bias


poly_norm = released(
    PACKAGE,
    lambda x, weight, bias: op("PolyNorm")(x, weight, bias, EPS, False),
    reference=_poly_norm,
    arguments={"x": _ROWS, "weight": Argument(3), "bias": Argument()},
)


def _fused_add(casting: str) -> Any:
    return released(
        PACKAGE,
        lambda x, residual, weight: op("FusedAddRMSNorm")(
            x, residual, weight, EPS, 0.0, casting, False
        ),
        reference=lambda x, residual, weight: (rms(x + residual, weight), x + residual),
        arguments={"x": _ROWS, "residual": _ROWS, "weight": _WIDTH},
    )


fused_add_rms_norm_llama = _fused_add("llama")
fused_add_rms_norm_none = _fused_add("none")
dyt = released(
    PACKAGE,
    lambda x, alpha, gamma, beta: op("DyT")(x, alpha, gamma, beta),
    reference=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    arguments={"x": _ROWS, "alpha": Argument(1), "gamma": _WIDTH, "beta": _WIDTH},
)

_SOME = {"rows": lambda sizes: strategies().sampled_from([1, 2, 3, 5, 33])}
modulated_rms_norm = released(
    PACKAGE,
    lambda x, weight, scale, shift: op("ModulatedRMSNorm")(
        x, weight, scale, shift, EPS, 0.0, "llama", False
    ),
    reference=lambda x, weight, scale, shift: rms(x, weight) * (1 + scale) + shift,
    arguments={"x": _ROWS, "weight": _WIDTH, "scale": _ROWS, "shift": _ROWS},
    sizes=_SOME,  # it asserts that there is a row
)
modulated_rms_norm_shared = released(
    PACKAGE,
    lambda x, weight, scale, shift: op("ModulatedRMSNorm")(
        x, weight, scale, shift, EPS, 0.0, "gemma", False
    ),
    reference=lambda x, weight, scale, shift: rms(x, weight) * (1 + scale) + shift,
    arguments={"x": _ROWS, "weight": _WIDTH, "scale": _WIDTH, "shift": _WIDTH},
)
