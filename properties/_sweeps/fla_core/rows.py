"""Activations and norms of the installed fla-core: operations of rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import ALL_OR_NONE, released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import strategies
from tpcheck import Argument, Case, KnownFinding
from tpcheck.case import FAMILIES

EPS = 1e-5
_ROWS, _WIDTH = Argument("rows", "width"), Argument("width")
_MANY = {"rows": lambda sizes: strategies().sampled_from([1, 2, 3, 5, 33])}


def _of_rows(
    place: str,
    *names: str,
    reference: Any,
    options: Any = (),
    rounding: Any = None,
    families: Sequence[str] = FAMILIES,
) -> Any:
    """An operation of tensors [rows, width]."""
    return released(
        PACKAGE,
        lambda *given: take(place)(*given, *options),
        reference=reference,
        arguments=dict.fromkeys(names, _ROWS),
        sizes=_MANY,
        rounding=rounding,
        families=families,
    )


class _LogOfASum(torch.autograd.Function):
    """log σ(x) as the kernel has it: without log1p, and its slope as 1 − σ(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(max=0) - torch.log(1 + torch.exp(-x.abs()))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return upstream[0] * (1 - torch.sigmoid(*ctx.saved_tensors))


# ---- activations

sigmoid = _of_rows("modules.activations.sigmoid", "x", reference=torch.sigmoid)
logsigmoid = _of_rows(
    "modules.activations.logsigmoid", "x", reference=F.logsigmoid, rounding=_LogOfASum.apply
)
swish = _of_rows("modules.activations.swish", "x", reference=F.silu)
sqrelu = _of_rows("modules.activations.sqrelu", "x", reference=lambda x: x.relu().square())
swiglu = _of_rows(
    "modules.activations.swiglu", "gate", "up", reference=lambda gate, up: F.silu(gate) * up
)

sigmoidglu = _of_rows(
    "modules.activations.sigmoidglu",
    "gate",
    "up",
    reference=lambda gate, up: torch.sigmoid(gate) * up,
)


def _powers(x: Tensor) -> Tensor:
    """x ** (3 / (√x + 1)) where it is positive, x elsewhere; times its sigmoid."""
    positive = x.where(x > 0, 1)
    power = (3 / (positive.sqrt() + 1) * positive.log()).exp()
    return torch.where(x > 0, power, x) * torch.sigmoid(x)


def _powglu(gate: Tensor, up: Tensor) -> Tensor:
    return _powers(gate) * up


powglu = _of_rows(
    "modules.activations.powglu",
    "gate",
    "up",
    reference=_powglu,
    families=[family for family in FAMILIES if family != "subnormal"],  # `powglu_subnormal`
)
_FOUR = {"rows": 2, "width": 2}
powglu_subnormal = released(
    PACKAGE,
    lambda gate, up: take("modules.activations.powglu")(gate.abs() / 8, up),
    reference=lambda gate, up: _powglu(gate.abs() / 8, up),
    arguments={"gate": _ROWS, "up": _ROWS},
    sizes=_FOUR,
    dtypes=("float32",),
    families=("subnormal",),
    gradients=ALL_OR_NONE,
    known=[
        KnownFinding(
            package="fla-core",
            releases="==0.6.0",
            code="unclassified",  # NaN
            case=Case(dims=_FOUR, dtype="float32", family="subnormal"),
            when=lambda case: case.gradients == "all",
            page="docs/findings/fla-powglu-subnormal.md",
        )
    ],
)

# ---- norms


def rms(x: Tensor, weight: Tensor, eps: float = EPS) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


l2norm = _of_rows(
    "modules.l2norm.l2norm",
    "x",
    reference=lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
)
layer_norm = released(
    PACKAGE,
    lambda x, weight, bias: take("modules.layernorm.layer_norm")(x, weight, bias, eps=EPS),
    reference=lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
    arguments={"x": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
    sizes=_MANY,
)
rms_norm = released(
    PACKAGE,
    lambda x, weight: take("modules.layernorm.rms_norm")(x, weight, None, eps=EPS),
    reference=rms,
    arguments={"x": _ROWS, "weight": _WIDTH},
    sizes=_MANY,
)
rms_norm_residual = released(
    PACKAGE,
    lambda x, weight, residual: take("modules.layernorm.rms_norm")(
        x, weight, None, residual=residual, eps=EPS, prenorm=True
    ),
    reference=lambda x, weight, residual: (rms(x + residual, weight), x + residual),
    arguments={"x": _ROWS, "weight": _WIDTH, "residual": _ROWS},
    sizes=_MANY,
)
rms_norm_gated = released(
    PACKAGE,
    lambda x, gate, weight: take("modules.fused_norm_gate.rms_norm_gated")(
        x, gate, weight, None, eps=EPS
    ),
    reference=lambda x, gate, weight: rms(x, weight) * F.silu(gate),
    arguments={"x": _ROWS, "gate": _ROWS, "weight": _WIDTH},
    sizes=_MANY,
)
layer_norm_gated = released(
    PACKAGE,
    lambda x, gate, weight, bias: take("modules.fused_norm_gate.layer_norm_gated")(
        x, gate, weight, bias, eps=EPS
    ),
    reference=lambda x, gate, weight, bias: (
        F.layer_norm(x, weight.shape, weight, bias, EPS) * F.silu(gate)
    ),
    arguments={"x": _ROWS, "gate": _ROWS, "weight": _WIDTH, "bias": _WIDTH},
    sizes=_MANY,
)
_GROUPS = Argument("groups", "width")
_GROUPED = {"x": Argument("rows", "groups", "width"), "weight": _GROUPS, "bias": _GROUPS}
_FEW = _MANY | {
    "groups": lambda sizes: strategies().integers(1, 3),
    "width": lambda sizes: strategies().sampled_from([1, 2, 5, 16, 17, 64, 65]),
}


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    return (normal * weight + bias).flatten(1)


group_norm = released(
    PACKAGE,
    lambda x, weight, bias: take("modules.layernorm.group_norm")(
        x.flatten(1), weight.flatten(), bias.flatten(), eps=EPS, num_groups=x.shape[1]
    ),
    reference=_group_norm,
    arguments=_GROUPED,
    sizes=_FEW,
)


def _gated_groups(x: Tensor, weight: Tensor, gate: Tensor, *, first: bool) -> Tensor:
    if first:
        x = x * F.silu(gate)
    out = rms(x, weight)
    return (out if first else out * F.silu(gate)).flatten(1)


def _rmsnorm_fn(*, first: bool) -> Any:
    """
    Args:
        first: whether the gate comes before the norm.
    """
    return released(
        PACKAGE,
        lambda x, weight, gate: take("modules.layernorm_gated.rmsnorm_fn")(
            x.flatten(1),
            weight.flatten(),
            None,
            z=gate.flatten(1),
            eps=EPS,
            group_size=x.shape[2],
            norm_before_gate=not first,
        ),
        reference=lambda x, weight, gate: _gated_groups(x, weight, gate, first=first),
        arguments={"x": _GROUPED["x"], "weight": _GROUPS, "gate": _GROUPED["x"]},
        sizes=_FEW,
    )


rmsnorm_fn = _rmsnorm_fn(first=False)
rmsnorm_fn_gate_first = _rmsnorm_fn(first=True)
layernorm_fn = released(
    PACKAGE,
    lambda x, weight, bias: take("modules.layernorm_gated.layernorm_fn")(
        x.flatten(1), weight.flatten(), bias.flatten(), eps=EPS, group_size=x.shape[2]
    ),
    reference=_group_norm,
    arguments=_GROUPED,
    sizes=_FEW,
)
