"""Activations of liger-kernel, softmax and sparsemax."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.liger import PACKAGE, op
from tpcheck import Argument

_ROWS = Argument("rows", "width")
_PAIR = {"gate": _ROWS, "up": _ROWS}

# the backwards of both write the gradients over the saved inputs
swiglu = released(
    PACKAGE,
    lambda gate, up: op("SiLUMul")(gate, up),
    reference=lambda gate, up: F.silu(gate) * up,
    arguments=_PAIR,
    overwrites=("gate", "up"),
)
geglu = released(
    PACKAGE,
    lambda gate, up: op("GELUMul")(gate, up),
    reference=lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    arguments=_PAIR,
    overwrites=("gate", "up"),
)
relu_squared = released(
    PACKAGE,
    lambda x: op("ReLUSquared")(x),
    reference=lambda x: x.relu().square(),
    arguments={"x": _ROWS},
)


def _gate_and_up(y: Tensor) -> Tensor:
    gate, up = y.flatten(1).chunk(2, -1)
    return F.silu(gate) * up


swiglu_fused_gate_up = released(
    PACKAGE,
    lambda y: op("FusedGateUpSiLUMul", "swiglu")(y.flatten(1)),
    reference=_gate_and_up,
    arguments={"y": Argument("rows", 2, "width")},
)
softmax = released(
    PACKAGE,
    lambda x: op("Softmax")(x),
    reference=lambda x: x.softmax(-1),
    arguments={"x": _ROWS},
)


def _sparsemax(x: Tensor) -> Tensor:
    """Martins and Astudillo, "From softmax to sparsemax", 2016: the projection onto the simplex."""
    order = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    inside = 1 + ranks * order > order.cumsum(-1)
    count = inside.sum(-1, keepdim=True)
    threshold = ((order * inside).sum(-1, keepdim=True) - 1) / count
    return (x - threshold).clamp_min(0)


sparsemax = released(
    PACKAGE,
    lambda x: op("Sparsemax")(x, -1),
    reference=_sparsemax,
    arguments={"x": _ROWS},
)
