"""Norms and activations of the installed fla-core with the projection that follows them, and
products of matrices.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import strategies
from tpcheck import Argument

EPS = 1e-5
_ROWS, _WIDTH = Argument("rows", "width"), Argument("width")
_OUT = {"linear": Argument("out", "width"), "out_bias": Argument("out")}
_SIZES = {
    "rows": lambda sizes: strategies().sampled_from([1, 2, 3, 17]),
    "width": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17, 33, 65]),
    "out": lambda sizes: strategies().sampled_from([1, 5, 16, 17]),
}


def _op(place: str, arguments: dict[str, Argument], reference: Any, **options: Any) -> Any:
    return released(
        PACKAGE,
        lambda *given: take(place)(*given, **options),
        reference=reference,
        arguments=arguments,
        sizes=_SIZES,
        large=False,
    )


def _layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, EPS)


def _rms(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight + bias


# ---- norms

_NORM = {"x": _ROWS, "weight": _WIDTH, "bias": _WIDTH} | _OUT


def _then_linear(norm: Any) -> Any:
    return lambda x, weight, bias, linear, out: F.linear(norm(x, weight, bias), linear, out)


layer_norm_linear = _op("modules.layernorm.layer_norm_linear", _NORM, _then_linear(_layer), eps=EPS)
rms_norm_linear = _op("modules.layernorm.rms_norm_linear", _NORM, _then_linear(_rms), eps=EPS)


def _two_groups(x: Tensor, weight: Tensor, bias: Tensor, linear: Tensor, out: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    return F.linear((normal * weight + bias).flatten(1), linear.flatten(1), out)


_TWO = Argument(2, "width")
group_norm_linear = released(
    PACKAGE,
    lambda x, weight, bias, linear, out: take("modules.layernorm.group_norm_linear")(
        x.flatten(1),
        weight.flatten(),
        bias.flatten(),
        linear.flatten(1),
        out,
        eps=EPS,
        num_groups=2,
    ),
    reference=_two_groups,
    arguments={"x": Argument("rows", 2, "width"), "weight": _TWO, "bias": _TWO}
    | {"linear": Argument("out", 2, "width"), "out_bias": Argument("out")},
    sizes=_SIZES,
    large=False,
)
_GATED = {"x": _ROWS, "gate": _ROWS, "weight": _WIDTH, "bias": _WIDTH} | _OUT


def _gated_linear(norm: Any) -> Any:
    return lambda x, gate, weight, bias, linear, out: F.linear(
        norm(x, weight, bias) * F.silu(gate), linear, out
    )


layer_norm_swish_gate_linear = _op(
    "modules.fused_norm_gate.layer_norm_swish_gate_linear", _GATED, _gated_linear(_layer), eps=EPS
)
rms_norm_swish_gate_linear = _op(
    "modules.fused_norm_gate.rms_norm_swish_gate_linear", _GATED, _gated_linear(_rms), eps=EPS
)

# ---- activations

_PAIR = {"gate": _ROWS, "up": _ROWS} | _OUT


def _powers(x: Tensor) -> Tensor:
    positive = x.where(x > 0, 1)
    power = (3 / (positive.sqrt() + 1) * positive.log()).exp()
    return torch.where(x > 0, power, x) * torch.sigmoid(x)


def _acted(activation: Any) -> Any:
    return lambda gate, up, linear, out: F.linear(activation(gate) * up, linear, out)


swiglu_linear = _op("modules.activations.swiglu_linear", _PAIR, _acted(F.silu))
sigmoidglu_linear = _op("modules.activations.sigmoidglu_linear", _PAIR, _acted(torch.sigmoid))
powglu_linear = _op("modules.activations.powglu_linear", _PAIR, _acted(_powers))

# ---- products: forward alone


_LEFT = Argument("rows", "width", gradient=False)
_RIGHT = Argument("width", "out", gradient=False)
matmul = _op("ops.utils.matmul", {"a": _LEFT, "b": _RIGHT}, torch.matmul)
addmm = _op(
    "ops.utils.addmm",
    {"x": Argument("rows", "out", gradient=False), "a": _LEFT, "b": _RIGHT},
    torch.addmm,
)
